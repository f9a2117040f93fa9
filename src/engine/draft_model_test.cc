#include "engine/draft_model.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace kvasir {
namespace {

class ListTokenizer final : public Tokenizer {
 public:
  explicit ListTokenizer(const std::vector<std::string>& texts, std::vector<TokenId> ends = {0}) {
    for (const std::string& text : texts) {
      texts_.append(text);
      kinds_.push_back(TokenKind::kNormal);
    }
    end_tokens_ = std::move(ends);
  }
  std::vector<TokenId> encode(std::string_view, EncodeOptions) const override { return {}; }
  std::vector<TokenId> encode_parts(std::span<const Part>, bool) const override { return {}; }
  std::string_view token_bytes(TokenId id, bool) const override { return texts_[id]; }
  bool strips_leading_space() const override { return false; }
};

TEST(DraftVocabulary, MustBeTheSameWhereBothHaveTokens) {
  const ListTokenizer target({"</s>", "a", "b", "c"});
  EXPECT_TRUE(check_vocabulary(target, ListTokenizer({"</s>", "a", "b", "c"})).ok());
  EXPECT_TRUE(check_vocabulary(target, ListTokenizer({"</s>", "a", "b", "c", "[PAD4]", "[PAD5]"})).ok());
  EXPECT_TRUE(check_vocabulary(target, ListTokenizer({"</s>", "a", "b"})).ok());
  // An end token that only one of them has is one that the other never sees.
  EXPECT_TRUE(check_vocabulary(target, ListTokenizer({"</s>", "a", "b", "c", "<end>"}, {0, 4})).ok());
}

TEST(DraftVocabulary, NamesTheFirstDifference) {
  const ListTokenizer target({"</s>", "a", "b", "c"}, {0, 3});
  const Status text = check_vocabulary(target, ListTokenizer({"</s>", "a", "x", "y"}, {0, 3}));
  EXPECT_NE(text.message().find("token 2 is 'x' in the draft model and 'b' here"), std::string::npos)
      << text.message();
  const Status fewer = check_vocabulary(target, ListTokenizer({"</s>", "a", "b", "c"}, {0}));
  EXPECT_NE(fewer.message().find("token 3 'c' ends a text here and not in the draft model"),
            std::string::npos)
      << fewer.message();
  const Status more = check_vocabulary(target, ListTokenizer({"</s>", "a", "b", "c"}, {0, 1, 3}));
  EXPECT_NE(more.message().find("token 1 'a' ends a text in the draft model and not here"), std::string::npos)
      << more.message();
}

KvLayout layout_of(uint32_t layers) {
  const std::vector<KvLayerSpec> specs(layers, {.kv_heads = 1, .head_dim = 64, .window = 0});
  return KvLayout::make(specs, 16).value();
}

MemoryReadings readings(uint64_t available) {
  return {.available = available, .cgroup_left = std::nullopt};
}

// A layer takes 16 tokens * 2 planes * 64 values * 2 bytes = 4096 bytes of a block.
TEST(DraftPool, HoldsWhatTheTargetHoldsWithinWhatIsLeft) {
  const KvLayout target = layout_of(4), draft = layout_of(2);
  ASSERT_EQ(draft.block_bytes(), 8192u);
  EngineConfig config;
  config.max_num_seqs = 8;
  config.kv_bytes = 100 * target.block_bytes();
  EXPECT_EQ(draft_pool_blocks(draft, target, config, 4096, readings(uint64_t{1} << 40)).value(), 100u);
  // Eight sequences of 32 tokens need no more than two blocks each.
  EXPECT_EQ(draft_pool_blocks(draft, target, config, 32, readings(uint64_t{1} << 40)).value(), 16u);
  // Half of the 40 blocks' worth that the target's pool leaves.
  const uint64_t tight = config.kv_bytes + 40 * draft.block_bytes();
  EXPECT_EQ(draft_pool_blocks(draft, target, config, 4096, readings(tight)).value(), 20u);
}

TEST(DraftPool, SaysWhenThereIsTooLittleMemory) {
  const KvLayout target = layout_of(4), draft = layout_of(2);
  EngineConfig config;
  config.kv_bytes = uint64_t{300} << 20;
  const auto blocks = draft_pool_blocks(draft, target, config, 4096, readings(config.kv_bytes + 8192));
  ASSERT_FALSE(blocks.ok());
  EXPECT_EQ(blocks.status().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(blocks.message().find("300 MiB"), std::string::npos) << blocks.message();
  EXPECT_NE(blocks.message().find("--kv-memory"), std::string::npos);
  const Status weights = check_draft_memory(uint64_t{500} << 20, config, readings(uint64_t{700} << 20));
  EXPECT_EQ(weights.code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(weights.message().find("needs 500 MiB, and beside the KV pool of 300 MiB there are 400 MiB"),
            std::string::npos)
      << weights.message();
  EXPECT_TRUE(check_draft_memory(uint64_t{400} << 20, config, readings(uint64_t{700} << 20)).ok());
}

}  // namespace
}  // namespace kvasir
