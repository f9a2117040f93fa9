#include "models/weights.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <utility>

#include "models/tiny_model.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

struct Loaded {
  ModelConfig config;
  ModelWeights weights;
};

Result<Loaded> load(const TinyModel& model) {
  const std::vector<std::byte> bytes = model.bytes();
  KVASIR_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::parse(bytes, "tiny"));
  KVASIR_ASSIGN_OR_RETURN(ModelConfig config, read_model_config(file.metadata()));
  ThreadPool pool(1);
  KVASIR_ASSIGN_OR_RETURN(ModelWeights weights, load_weights(file, config, pool, {}));
  return Loaded{std::move(config), std::move(weights)};
}

TEST(LoadWeights, TakesAWholeModel) {
  for (const bool own_head : {false, true}) {
    const Result<Loaded> loaded = load({.own_head = own_head});
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_EQ(loaded->config.vocab_size, 20u);
    EXPECT_EQ(loaded->weights.tied, !own_head);
    EXPECT_EQ(loaded->weights.head.n, 20u);
  }
}

TEST(LoadWeights, AFileWithoutOneOfItsTensorsIsDamaged) {
  for (const char* name :
       {"token_embd.weight", "output_norm.weight", "blk.0.attn_k.weight", "blk.0.ffn_norm.weight"}) {
    const Result<Loaded> loaded = load({.without = name});
    ASSERT_FALSE(loaded.ok()) << name;
    EXPECT_EQ(loaded.status().code(), ErrorCode::kCorrupt);
    EXPECT_EQ(loaded.message(), std::string("tensor '") + name + "' is missing");
  }
}

TEST(LoadWeights, EveryTokenNeedsARowOfTheEmbedding) {
  const Result<Loaded> loaded = load({.tokens = 21, .rows = 20});
  ASSERT_FALSE(loaded.ok());
  EXPECT_EQ(loaded.status().code(), ErrorCode::kCorrupt);
  for (const char* part : {"'token_embd.weight' has 20 rows", "21 tokens"})
    EXPECT_THAT(loaded.message(), HasSubstr(part));
}

// A padded embedding makes the same model to the bit: no id beyond the vocabulary has a logit.
TEST(LoadWeights, RowsWithoutATokenAreLeftOut) {
  for (const bool own_head : {false, true}) {
    const Result<Loaded> exact = load({.own_head = own_head});
    const Result<Loaded> padded = load({.rows = 37, .own_head = own_head});
    ASSERT_TRUE(exact.ok() && padded.ok());
    EXPECT_EQ(padded->config.vocab_size, 20u);
    EXPECT_EQ(padded->weights.head.n, 20u);
    if (own_head) {
      EXPECT_EQ(padded->weights.embedding.shape[1], 20u);
    }
    const AlignedBuffer &a = exact->weights.memory, &b = padded->weights.memory;
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size()), 0);
  }
}

TEST(LoadWeights, WithoutATokenizerEveryRowIsAToken) {
  const Result<Loaded> loaded = load({.tokens = 0, .rows = 24});
  ASSERT_TRUE(loaded.ok()) << loaded.message();
  EXPECT_EQ(loaded->config.vocab_size, 24u);
}

}  // namespace
}  // namespace kvasir
