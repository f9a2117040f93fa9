#include "kvcache/prefix_cache.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>

#include "kvcache/kv_rig.h"

namespace kvasir {
namespace {

TEST(PrefixCache, FinishedPrefixIsFoundAgain) {
  Kv kv({0}, 16);
  const std::vector<TokenId> tokens = text(70);
  {
    BlockTable t = kv.table();
    kv.compute(t, tokens, 0, 70);
  }
  kv.check();
  BlockTable t = kv.table();
  const PrefixCache::Hit hit = kv.cache.lookup(t.salt(), tokens, 69);
  EXPECT_EQ(hit.tokens, 64u);
  EXPECT_EQ(hit.blocks, 4u);
  EXPECT_EQ(hit.idle_blocks, 4u);
  t.adopt(hit);
  EXPECT_EQ(kv.pool.owned(), 4u);
  kv.compute(t, tokens, 64, 6);
  kv.expect_visible(t, tokens, 69);
  kv.check({&t});
}

// A prompt of whole blocks: all but its last token is served, and the last block is rewritten in place or
// copied.
TEST(PrefixCache, HitInsideABlockNeverWritesWhatOthersOwn) {
  Kv kv({0}, 16);
  const std::vector<TokenId> tokens = text(64);
  BlockTable first = kv.table();
  kv.compute(first, tokens, 0, 64);
  BlockTable second = kv.table();
  const PrefixCache::Hit hit = kv.cache.lookup(second.salt(), tokens, 63);
  EXPECT_EQ(hit.tokens, 63u);
  EXPECT_EQ(hit.idle_blocks, 0u);
  second.adopt(hit);
  kv.check({&first, &second});
  EXPECT_EQ(second.blocks_wanted(63, 1), 1u);  // the shared last block is copied
  ASSERT_TRUE(kv.compute(second, tokens, 63, 1));
  // The copy was full and equal: it was exchanged for the block that was there.
  EXPECT_EQ(second.tables()[0][3], first.tables()[0][3]);
  kv.check({&first, &second});
  first.release();
  second.release();

  BlockTable third = kv.table();
  third.adopt(kv.cache.lookup(third.salt(), tokens, 63));
  EXPECT_EQ(third.blocks_wanted(63, 1), 0u);  // sole owner: no copy
  std::vector<TokenId> other = tokens;
  other[63] = 7777;
  ASSERT_TRUE(kv.compute(third, other, 63, 1));
  kv.check({&third});
  // Rewriting took the old block out of the cache before it changed.
  EXPECT_EQ(kv.cache.lookup(third.salt(), tokens, 64).tokens, 48u);
  EXPECT_EQ(kv.cache.lookup(third.salt(), other, 64).tokens, 64u);
}

// Public fault: a rolled-back token's block kept its hash and served a later request.
TEST(PrefixCache, RollbackIntoAFullBlockDropsItFromTheCache) {
  Kv kv({0}, 8);
  std::vector<TokenId> tokens = text(16);
  BlockTable t = kv.table();
  kv.compute(t, tokens, 0, 16);
  const std::vector<TokenId> old = tokens;
  t.truncate_to(15);
  tokens[15] = 999;
  kv.compute(t, tokens, 15, 1);
  kv.check({&t});
  EXPECT_EQ(kv.cache.lookup(t.salt(), old, 16).tokens, 0u);
  EXPECT_EQ(kv.cache.lookup(t.salt(), tokens, 16).tokens, 16u);
}

TEST(PrefixCache, EqualBlocksComputedTwiceAreKeptOnce) {
  Kv kv({0}, 16);
  const std::vector<TokenId> tokens = text(50);
  BlockTable a = kv.table(), b = kv.table();
  kv.compute(a, tokens, 0, 20);
  kv.compute(b, tokens, 0, 40);
  EXPECT_EQ(a.tables()[0][0], b.tables()[0][0]);
  kv.compute(a, tokens, 20, 30);
  EXPECT_EQ(a.tables()[0][1], b.tables()[0][1]);
  kv.check({&a, &b});
  EXPECT_EQ(kv.pool.owned(), 3u + 1 + 1);
}

TEST(PrefixCache, SaltsNeverMeet) {
  Kv kv({0}, 16);
  const std::vector<TokenId> tokens = text(32);
  BlockTable a = kv.table("alice"), b = kv.table("bob"), c = kv.table("alice");
  kv.compute(a, tokens, 0, 32);
  EXPECT_EQ(kv.cache.lookup(b.salt(), tokens, 32).tokens, 0u);
  EXPECT_EQ(kv.cache.lookup(c.salt(), tokens, 32).tokens, 32u);
}

TEST(PrefixCache, SaltsAreForgottenWithTheirLastBlock) {
  Kv kv({0}, 4);
  for (int i = 0; i < 100; ++i) {
    BlockTable t = kv.table("user " + std::to_string(i));
    ASSERT_TRUE(kv.compute(t, text(17), 0, 17));
  }
  EXPECT_LE(kv.cache.salt_count(), 4u);
  kv.check();
}

// Public fault: a block found by its hash alone served another prompt's KV.
TEST(PrefixCache, CollidingHashesAreToldApart) {
  for (const uint32_t bits : {0u, 1u, 3u}) {
    Kv kv({0, 20}, 200, {true, 0, bits});
    std::vector<BlockTable> tables;
    for (int i = 0; i < 12; ++i) {
      std::vector<TokenId> tokens = text(64, i * 5 % 3);
      tokens[static_cast<size_t>(i)] += 1000;
      tables.push_back(kv.table());
      const PrefixCache::Hit hit = kv.cache.lookup(tables.back().salt(), tokens, 63);
      tables.back().adopt(hit);
      ASSERT_TRUE(kv.compute(tables.back(), tokens, hit.tokens, 64 - hit.tokens));
    }
    std::vector<const BlockTable*> all;
    for (const BlockTable& t : tables) all.push_back(&t);
    kv.check(all);
  }
}

// A hit needs the whole prefix of full layers, but of window layers only what the next row sees.
TEST(PrefixCache, WindowLayersHitOnTheirLastWindowOnly) {
  Kv kv({0, 32}, 200);
  const std::vector<TokenId> tokens = text(640);
  {
    BlockTable t = kv.table();
    for (uint32_t c = 0; c < 640; c += 64) kv.compute(t, tokens, c, 64);
  }
  kv.check();
  {
    // Everything is still cached: a hit owns only what will be read.
    BlockTable t = kv.table();
    t.adopt(kv.cache.lookup(t.salt(), tokens, 639));
    EXPECT_EQ(t.block_count(), 40u + 2);  // 639 - 31 = 608 starts entry 38
    kv.check({&t});
    kv.compute(t, tokens, 639, 1);
  }
  // Now push out the window blocks that left early: hits at the end survive.
  ASSERT_TRUE(kv.cache.make_room(kv.pool.free() + 30));
  kv.check();
  BlockTable t = kv.table();
  EXPECT_EQ(kv.cache.lookup(t.salt(), tokens, 639).tokens, 639u);
  EXPECT_EQ(kv.cache.lookup(t.salt(), text(200), 199).tokens, 0u) << "its window is gone";
}

TEST(PrefixCache, ModelOfWindowsOnlyCachesBoundedly) {
  Kv kv({20}, 6);
  const std::vector<TokenId> tokens = text(4000);
  BlockTable t = kv.table();
  for (uint32_t c = 0; c < 4000; c += 16) ASSERT_TRUE(kv.compute(t, tokens, c, 16));
  kv.check({&t});
  t.release();
  BlockTable again = kv.table();
  const PrefixCache::Hit hit = kv.cache.lookup(again.salt(), tokens, 3999);
  EXPECT_EQ(hit.tokens, 3999u);
  again.adopt(hit);
  kv.compute(again, tokens, 3999, 1);
  kv.check({&again});
}

TEST(PrefixCache, LeavesAreGivenUpBeforeTheirPrefix) {
  Kv kv({0}, 12);
  const std::vector<TokenId> tokens = text(160);
  {
    BlockTable t = kv.table();
    kv.compute(t, tokens, 0, 160);
  }
  ASSERT_TRUE(kv.cache.make_room(8));
  BlockTable t = kv.table();
  EXPECT_EQ(kv.cache.lookup(t.salt(), tokens, 160).tokens, 64u);
}

}  // namespace
}  // namespace kvasir
