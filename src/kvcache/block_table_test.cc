#include "kvcache/block_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <utility>

#include "kvcache/kv_rig.h"

namespace kvasir {
namespace {

TEST(BlockTable, GrowsByWholeBlocksAndGivesThemBack) {
  Kv kv({0}, 8);
  BlockTable t = kv.table();
  const std::vector<TokenId> tokens = text(100);
  EXPECT_TRUE(kv.compute(t, tokens, 0, 16));
  EXPECT_EQ(t.block_count(), 1u);
  EXPECT_TRUE(kv.compute(t, tokens, 16, 1));
  EXPECT_EQ(t.block_count(), 2u);
  EXPECT_TRUE(kv.compute(t, tokens, 17, 83));
  EXPECT_EQ(t.block_count(), 7u);
  t.truncate_to(33);
  EXPECT_EQ(t.block_count(), 3u);
  kv.check({&t});
  t.release();
  EXPECT_EQ(kv.pool.owned(), 0u);
  EXPECT_EQ(kv.pool.cached(), 6u);
  kv.check();
}

TEST(BlockTable, RefusesWithoutChangeWhenThePoolIsEmpty) {
  Kv kv({0}, 2);
  BlockTable t = kv.table();
  const std::vector<TokenId> tokens = text(40);
  EXPECT_FALSE(kv.compute(t, tokens, 0, 40));
  EXPECT_EQ(t.block_count(), 0u);
  EXPECT_TRUE(kv.compute(t, tokens, 0, 32));
  EXPECT_FALSE(kv.compute(t, tokens, 32, 1));
}

TEST(BlockTable, ForkSharesEverythingAndCopiesTheTailOnWrite) {
  Kv kv({0, 24}, 32);
  std::vector<TokenId> a_tokens = text(40), b_tokens = text(40);
  BlockTable a = kv.table();
  kv.compute(a, a_tokens, 0, 40);
  const uint32_t alone = kv.pool.owned();
  BlockTable b = a.fork();
  EXPECT_EQ(kv.pool.owned(), alone);
  kv.check({&a, &b});
  a_tokens.push_back(501);
  b_tokens.push_back(502);
  kv.compute(b, b_tokens, 40, 1);
  EXPECT_EQ(kv.pool.owned(), alone + kv.layout.units());
  kv.compute(a, a_tokens, 40, 1);
  EXPECT_EQ(kv.pool.owned(), alone + kv.layout.units());  // the last owner writes in place
  kv.expect_visible(a, a_tokens, 40);
  kv.expect_visible(b, b_tokens, 40);
  kv.check({&a, &b});
}

TEST(BlockTable, BlocksThatLeftTheWindowComeBack) {
  Kv kv({0, 32, 32}, 400, {false, 0, 64});
  BlockTable t = kv.table();
  const std::vector<TokenId> tokens = text(1000);
  for (uint32_t c = 0; c < 1000; c += 10) {
    ASSERT_TRUE(kv.compute(t, tokens, c, 10));
    EXPECT_LE(t.block_count(), kv.layout.blocks_for(c + 11));
    EXPECT_EQ(t.block_count(), kv.pool.owned());
  }
  EXPECT_EQ(t.block_count(), 63u + 2 * 3);
  kv.check({&t});
}

struct Actor {
  std::unique_ptr<BlockTable> table;
  std::vector<TokenId> tokens;
  uint32_t computed = 0;
};

void random_life(Kv& kv, uint32_t seed, int steps) {
  std::mt19937 rng(seed);
  std::vector<Actor> actors;
  const auto check_all = [&] {
    std::vector<const BlockTable*> tables;
    for (const Actor& a : actors) tables.push_back(a.table.get());
    kv.check(tables);
  };
  for (int step = 0; step < steps && !testing::Test::HasFatalFailure(); ++step) {
    const uint32_t op = rng() % 10;
    if (op == 0 && actors.size() < 8) {
      Actor a;
      a.table = std::make_unique<BlockTable>(kv.table(rng() % 4 == 0 ? "salt" : ""));
      a.tokens = text(1 + rng() % 120, static_cast<TokenId>(rng() % 2));
      a.tokens[rng() % a.tokens.size()] += static_cast<TokenId>(rng() % 2);
      const PrefixCache::Hit hit =
          kv.cache.lookup(a.table->salt(), a.tokens, static_cast<uint32_t>(a.tokens.size()) - 1);
      a.table->adopt(hit);
      a.computed = hit.tokens;
      actors.push_back(std::move(a));
    } else if (op == 1 && !actors.empty() && actors.size() < 8) {
      const Actor& from = actors[rng() % actors.size()];
      Actor a;
      a.table = std::make_unique<BlockTable>(from.table->fork());
      a.tokens = from.tokens;
      a.computed = from.computed;
      a.tokens.resize(a.computed);
      a.tokens.push_back(static_cast<TokenId>(rng() % 3));
      actors.push_back(std::move(a));
    } else if (op == 2 && !actors.empty()) {
      std::swap(actors[rng() % actors.size()], actors.back());
      actors.pop_back();
    } else if (!actors.empty()) {
      Actor& a = actors[rng() % actors.size()];
      if (a.computed == a.tokens.size()) a.tokens.push_back(static_cast<TokenId>(rng() % 3));
      const uint32_t rows = 1 + rng() % (static_cast<uint32_t>(a.tokens.size()) - a.computed);
      if (a.tokens.size() < 400 && kv.compute(*a.table, a.tokens, a.computed, rows)) {
        a.computed += rows;
      } else {
        a.table->release();
        a.computed = 0;
      }
    }
    check_all();
  }
  actors.clear();
  check_all();
  EXPECT_EQ(kv.pool.owned(), 0u);
}

TEST(BlockTable, RandomLivesReadTheirOwnTokens) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    Kv plain({0}, 30);
    random_life(plain, seed, 1500);
    Kv windows({0, 20, 20, 40}, 120);
    random_life(windows, seed + 100, 1500);
    Kv only_windows({17}, 20, {true, 5, 2});
    random_life(only_windows, seed + 200, 1500);
    Kv uncached({0, 33}, 60, {false, 0, 64});
    random_life(uncached, seed + 300, 500);
  }
}

}  // namespace
}  // namespace kvasir
