#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <string>
#include <vector>

#include "models/arch/arch.h"

namespace kvasir {
namespace {

using testing::HasSubstr;
using Windows = std::vector<uint32_t>;

constexpr const char* kPattern = "gemma3.attention.sliding_window_pattern";

// The smallest configuration that passes the checks, with a window of 512.
GgufMetadata gemma(int64_t layers) {
  GgufMetadata m;
  m.insert("gemma3.block_count", layers);
  m.insert("gemma3.context_length", int64_t{4096});
  m.insert("gemma3.embedding_length", int64_t{64});
  m.insert("gemma3.feed_forward_length", int64_t{64});
  m.insert("gemma3.attention.head_count", int64_t{4});
  m.insert("gemma3.attention.head_count_kv", int64_t{2});
  m.insert("gemma3.attention.sliding_window", int64_t{512});
  return m;
}

Windows windows(const GgufMetadata& metadata) {
  const Result<ModelConfig> config = read_gemma3_config(metadata);
  EXPECT_TRUE(config.ok()) << config.message();
  return config.ok() ? config->windows : Windows();
}

TEST(Gemma3, EverySixthLayerSeesEverythingByDefault) {
  const GgufMetadata m = gemma(8);
  EXPECT_EQ(windows(m), (Windows{512, 512, 512, 512, 512, 0, 512, 512}));
}

TEST(Gemma3, ThePatternMayBeANumber) {
  GgufMetadata m = gemma(5);
  m.insert(kPattern, int64_t{2});
  EXPECT_EQ(windows(m), (Windows{512, 0, 512, 0, 512}));
}

TEST(Gemma3, ThePatternMayListTheLayers) {
  GgufMetadata m = gemma(4);
  m.insert(kPattern, std::vector<bool>{false, true, true, false});
  EXPECT_EQ(windows(m), (Windows{0, 512, 512, 0}));
}

TEST(Gemma3, TheListNamesEveryLayer) {
  for (const size_t listed : {size_t{0}, size_t{3}, size_t{5}}) {
    GgufMetadata m = gemma(4);
    m.insert(kPattern, std::vector<bool>(listed, true));
    const Result<ModelConfig> config = read_gemma3_config(m);
    ASSERT_FALSE(config.ok());
    EXPECT_EQ(config.status().code(), ErrorCode::kCorrupt);
    EXPECT_EQ(config.message(), std::string(kPattern) + " lists " + std::to_string(listed) +
                                    " layers, and gemma3.block_count is 4");
  }
}

TEST(Gemma3, AnyOtherPatternIsRefused) {
  GgufMetadata strings = gemma(4);
  strings.insert(kPattern, std::vector<std::string>{"local", "global"});
  EXPECT_THAT(read_gemma3_config(strings).message(), HasSubstr("is an array of strings, not an integer"));
  GgufMetadata negative = gemma(4);
  negative.insert(kPattern, int64_t{-1});
  EXPECT_THAT(read_gemma3_config(negative).message(), HasSubstr("is -1, which is outside 0 to 1024"));
}

// Attention takes the rows of all heads that share a KV head in one call.
TEST(Gemma3, TooManyHeadsPerKvHeadAreRefused) {
  const GgufMetadata common = gemma(2);
  GgufMetadata m;
  for (const auto& [key, value] : common.entries())
    if (key != "gemma3.attention.head_count" && key != "gemma3.attention.head_count_kv") m.insert(key, value);
  m.insert("gemma3.attention.head_count", int64_t{97});
  m.insert("gemma3.attention.head_count_kv", int64_t{1});
  m.insert("gemma3.attention.key_length", int64_t{64});
  m.insert("gemma3.attention.value_length", int64_t{64});
  const Result<ModelConfig> config = read_gemma3_config(m);
  ASSERT_FALSE(config.ok());
  EXPECT_THAT(config.message(), HasSubstr("97 heads share 1 KV heads: at most 96"));
}

TEST(Gemma3, WithoutAWindowEveryLayerSeesEverything) {
  const GgufMetadata with_window = gemma(3);
  GgufMetadata m;
  for (const auto& [key, value] : with_window.entries())
    if (key != "gemma3.attention.sliding_window") m.insert(key, value);
  EXPECT_EQ(windows(m), (Windows{0, 0, 0}));
}

}  // namespace
}  // namespace kvasir
