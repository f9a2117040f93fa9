// What a step costs, of a real file: its shapes against numbers worked out by hand.

#include "models/weight_sizes.h"

#include "tests/model_fixture.h"

namespace kvasir {
namespace {

// SmolLM2-135M: 30 layers of width 576, 9 query and 3 KV heads of 64, feed-forward 1536; a tied head of
// 49,152.
TEST(WeightSizes, OfSmolLm2) {
  const std::string path = model_path("smollm2-135m-instruct-q4_1.gguf");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent: tools/fetch_models.py fetches it";
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file.ok()) << file.message();
  auto config = read_model_config(file->metadata());
  ASSERT_TRUE(config.ok()) << config.message();
  const auto sizes = read_weight_sizes(*file, *config);
  ASSERT_TRUE(sizes.ok()) << sizes.message();
  EXPECT_EQ(config->vocab_size, 49152u);
  EXPECT_EQ(sizes->layer_macs, 30u * (2 * 576 * 576 + 2 * 192 * 576 + 3 * 576 * 1536));
  EXPECT_EQ(sizes->last_macs, 576u * 576 + 3 * 576 * 1536);
  EXPECT_EQ(sizes->head_macs, 49152u * 576);
  // Matrices are all but norms of what will be allocated.
  const auto packed = packed_weight_bytes(*file, *config);
  ASSERT_TRUE(packed.ok());
  const uint64_t norms = (30 * 2 + 1) * 576 * sizeof(float);
  EXPECT_EQ(sizes->layer_bytes + sizes->head_bytes + norms, *packed);
}

}  // namespace
}  // namespace kvasir
