#include "gguf/fingerprint.h"

#include <gtest/gtest.h>

#include <set>

#include "gguf/gguf_builder.h"

namespace kvasir {
namespace {

std::vector<std::byte> weights(size_t count, int first) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(first + static_cast<int>(i));
  return bytes;
}

std::string of(const GgufBuilder& builder) {
  const std::vector<std::byte> bytes = builder.build();
  const Result<GgufFile> file = GgufFile::parse(bytes, "m");
  EXPECT_TRUE(file.ok()) << file.message();
  return model_fingerprint(*file);
}

GgufBuilder model(const char* name = "llama", uint32_t layers = 3, const char* tensor = "a", int first = 0) {
  GgufBuilder builder;
  builder.string("general.architecture", name).u32("llama.block_count", layers);
  builder.tensor(tensor, 0, {4, 2}, weights(32, 7)).tensor("b", 0, {8}, weights(32, first));
  return builder;
}

TEST(Fingerprint, EveryPartOfAModelCounts) {
  EXPECT_EQ(of(model()), of(model()));
  EXPECT_EQ(of(model()).size(), 32u);
  GgufBuilder shape;
  shape.string("general.architecture", "llama").u32("llama.block_count", 3);
  shape.tensor("a", 0, {2, 4}, weights(32, 7)).tensor("b", 0, {8}, weights(32, 0));
  GgufBuilder more = model();
  more.u32("llama.context_length", 3);
  const std::set<std::string> all = {of(model()),
                                     of(model("qwen2")),
                                     of(model("llama", 4)),
                                     of(model("llama", 3, "c")),
                                     of(model("llama", 3, "a", 1)),
                                     of(shape),
                                     of(more)};
  EXPECT_EQ(all.size(), 7u);
}

}  // namespace
}  // namespace kvasir
