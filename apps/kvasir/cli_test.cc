#include "apps/kvasir/cli.h"

#include <gtest/gtest.h>

#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>

#include <algorithm>

#include "apps/kvasir/engine_flags.h"
#include "apps/kvasir/human_size.h"

namespace kvasir {
namespace {

TEST(HumanSize, ReadsWhatPeopleWrite) {
  EXPECT_EQ(*parse_size("512M"), 512ull << 20);
  EXPECT_EQ(*parse_size("2G"), 2ull << 30);
  EXPECT_EQ(*parse_size("12MiB"), 12ull << 20);
  EXPECT_EQ(*parse_size("1.5g"), 3ull << 29);
  EXPECT_EQ(*parse_size("800 KB"), 800ull << 10);
  EXPECT_EQ(*parse_size("1048576"), 1048576u);
  EXPECT_EQ(*parse_size("7B"), 7u);
  for (const char* bad : {"", "M", "-1G", "0", "1X", "1GG", "nan", "inf", "1e40", "2000000T", "1G extra"}) {
    EXPECT_FALSE(parse_size(bad).ok()) << bad;
  }
}

TEST(HumanSize, WritesThemBack) {
  EXPECT_EQ(size_text(17), "17 bytes");
  EXPECT_EQ(size_text(98'500'000), "93.9 MiB");
  EXPECT_EQ(size_text(1536), "1.50 KiB");
  EXPECT_EQ(count_text(134'515'008), "134.5 M");
  EXPECT_EQ(count_text(1'540'000'000), "1.54 B");
}

Result<Llm::Options> options_of(std::vector<std::string> words) {
  CLI::App app;
  EngineFlags flags;
  flags.add_to(app);
  std::reverse(words.begin(), words.end());
  app.parse(words);
  return flags.options();
}

TEST(EngineFlags, KvCacheDtypeTakesOurNamesAndVllms) {
  EXPECT_EQ(options_of({"model.gguf"}).value().engine.kv_type, KvType::kF16);
  for (const char* name : {"auto", "f16", "fp16", "float16"})
    EXPECT_EQ(options_of({"model.gguf", "--kv-cache-dtype", name}).value().engine.kv_type, KvType::kF16)
        << name;
  for (const char* name : {"int8", "int8_per_token_head"})
    EXPECT_EQ(options_of({"model.gguf", "--kv-cache-dtype", name}).value().engine.kv_type, KvType::kInt8);
  const auto bad = options_of({"model.gguf", "--kv-cache-dtype", "fp8"});
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.status().code(), ErrorCode::kInvalidArgument);
  for (const char* word : {"--kv-cache-dtype", "fp8", "f16", "int8"})
    EXPECT_NE(bad.message().find(word), std::string::npos) << bad.message();
}

TEST(NearestWord, FindsTyposAndNothingElse) {
  const std::vector<std::string> words = {"serve", "run", "inspect", "--port", "--host", "--max-model-len"};
  EXPECT_EQ(nearest_word("sevre", words), "serve");
  EXPECT_EQ(nearest_word("inspct", words), "inspect");
  EXPECT_EQ(nearest_word("--prot", words), "--port");
  EXPECT_EQ(nearest_word("--max_model_len", words), "--max-model-len");
  EXPECT_EQ(nearest_word("rnu", words), "run");
  EXPECT_EQ(nearest_word("frobnicate", words), "");
}

}  // namespace
}  // namespace kvasir
