#include "engine/shared_rows.h"

#include <gtest/gtest.h>

#include "kernels/table.h"
#include "kvcache/kv_rig.h"

namespace kvasir {
namespace {

// Sequences of 16 tokens a block that begin with the blocks of one prefix.
class SharedRowsTest : public testing::Test {
 protected:
  // A sequence that has computed `computed` tokens, the first `shared` of them in the prefix's own blocks.
  Sequence sequence(uint32_t shared, uint32_t computed) {
    BlockTable table = kv_.table();
    std::vector<TokenId> tokens = text(shared);
    for (uint32_t i = shared; i < computed + 1; ++i) tokens.push_back(++different_);
    const PrefixCache::Hit hit = kv_.cache.lookup(table.salt(), tokens, computed);
    EXPECT_EQ(hit.tokens, shared);
    table.adopt(hit);
    EXPECT_TRUE(kv_.compute(table, tokens, hit.tokens, computed - hit.tokens));
    Sequence s(std::move(table), std::move(tokens), computed);
    s.computed = computed;
    return s;
  }
  void SetUp() override {
    BlockTable table = kv_.table();
    ASSERT_TRUE(kv_.compute(table, text(512), 0, 512));
    kept_.push_back(std::move(table));
  }

  Kv kv_{{0}, 400, {true, 0, 64}};
  std::vector<BlockTable> kept_;
  TokenId different_ = 10'000;
  SharedRows shared_{kv_.layout, 8};
};

TEST_F(SharedRowsTest, LaterOnesNameWhatTheyShareWithTheFirst) {
  const Sequence a = sequence(192, 300), b = sequence(192, 250), c = sequence(128, 400), d = sequence(0, 400);
  StepRows rows = shared_.rows_of(a, 1);
  EXPECT_EQ(rows.rows, 1u);
  EXPECT_EQ(rows.context, 300u);
  EXPECT_EQ(rows.shared, 0u);
  rows = shared_.rows_of(d, 1);
  EXPECT_EQ(rows.shared, 0u);
  rows = shared_.rows_of(b, 3);
  EXPECT_EQ(rows.shared, 192u) << "twelve blocks, three chunks of 64 positions";
  EXPECT_EQ(rows.beside, 1u);
  rows = shared_.rows_of(c, 1);
  EXPECT_EQ(rows.shared, 128u);
  EXPECT_EQ(rows.beside, 4u);
}

TEST_F(SharedRowsTest, WhatWouldHalveThePrefixIsLeftAlone) {
  const Sequence a = sequence(400, 420), b = sequence(400, 420), c = sequence(160, 420);
  shared_.rows_of(a, 1);
  EXPECT_EQ(shared_.rows_of(b, 1).shared, 384u);
  EXPECT_EQ(shared_.rows_of(c, 1).shared, 0u);
  EXPECT_EQ(shared_.rows_of(b, 1).beside, 2u) << "the third is not among them";
}

TEST_F(SharedRowsTest, ShortOnesAndPromptsShareNothing) {
  const Sequence a = sequence(400, 420), b = sequence(400, 420), brief = sequence(48, 60);
  shared_.rows_of(a, 1);
  EXPECT_EQ(shared_.rows_of(b, kAttnMaxRows).shared, 0u);
  EXPECT_EQ(shared_.rows_of(brief, 1).shared, 0u);
  shared_.clear();
  EXPECT_EQ(shared_.rows_of(b, 1).shared, 0u) << "the first of a new step";
}

}  // namespace
}  // namespace kvasir
