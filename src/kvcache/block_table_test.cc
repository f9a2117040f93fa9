#include "kvcache/block_table.h"

#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <random>
#include <string>

namespace kvasir {
namespace {

constexpr uint32_t kBlock = 16;

uint64_t prefix_value(const std::vector<TokenId>& tokens, uint32_t position) {
  uint64_t value = 14695981039346656037ull;
  for (uint32_t p = 0; p <= position; ++p)
    value = (value ^ static_cast<uint64_t>(tokens[p] + 1)) * 1099511628211ull;
  return value;
}

// A pool whose slots remember what was written where: like K and V, a value made from the whole prefix. So a
// wrong table shows as a wrong value.
class Kv {
 public:
  Kv(std::vector<uint32_t> windows, uint32_t blocks, PrefixCache::Options options = {})
      : layout(make_layout(windows)),
        pool(blocks),
        cache(layout, pool, options),
        slots(size_t{blocks} * kBlock, 0) {}

  static KvLayout make_layout(const std::vector<uint32_t>& windows) {
    std::vector<KvLayerSpec> layers;
    for (const uint32_t w : windows) layers.push_back({1, 8, w});
    return KvLayout::make(layers, kBlock).value();
  }

  BlockTable table(const std::string& salt = "") { return BlockTable(layout, pool, cache, salt, 4096); }

  // Computes tokens [computed, computed + rows): the scheduler's, runner's and commit's part of a step.
  bool compute(BlockTable& t, const std::vector<TokenId>& tokens, uint32_t computed, uint32_t rows) {
    std::vector<BlockCopy> copies;
    const uint32_t wanted = t.blocks_wanted(computed, rows);
    const uint32_t before = pool.available();
    if (!t.prepare(computed, rows, &copies)) {
      EXPECT_GT(wanted, before);
      EXPECT_EQ(pool.available(), before);
      return false;
    }
    EXPECT_EQ(wanted, before - pool.available());
    EXPECT_TRUE(t.writable(computed, rows));
    for (const BlockCopy& copy : copies)
      std::copy_n(&slots[index_of(copy.from) * kBlock], kBlock, &slots[index_of(copy.to) * kBlock]);
    for (uint32_t p = computed; p < computed + rows; ++p) {
      for_each_unit(t, p, [&](uint64_t& slot) { slot = prefix_value(tokens, p); });
    }
    expect_visible(t, tokens, computed);
    t.commit(tokens, computed + rows);
    return true;
  }

  // A row at `position` reads its own tokens in every group.
  void expect_visible(const BlockTable& t, const std::vector<TokenId>& tokens, uint32_t position) {
    for (size_t g = 0; g < layout.groups().size(); ++g) {
      for (uint32_t p = first_visible(layout.groups()[g].window, position); p <= position; ++p) {
        for (uint32_t u = 0; u < layout.groups()[g].units; ++u) {
          const BlockId id = t.tables()[g][p / kBlock * layout.groups()[g].units + u];
          ASSERT_NE(id, kNoBlock) << "group " << g << " position " << p << " seen from " << position;
          ASSERT_EQ(slots[index_of(id) * kBlock + p % kBlock], prefix_value(tokens, p))
              << "group " << g << " position " << p;
        }
      }
    }
  }

  template <class F>
  void for_each_unit(const BlockTable& t, uint32_t p, F f) {
    for (size_t g = 0; g < layout.groups().size(); ++g) {
      for (uint32_t u = 0; u < layout.groups()[g].units; ++u)
        f(slots[index_of(t.tables()[g][p / kBlock * layout.groups()[g].units + u]) * kBlock + p % kBlock]);
    }
  }

  void check(std::vector<const BlockTable*> tables = {}) {
    Status status = pool.check_integrity();
    ASSERT_TRUE(status.ok()) << status.message();
    status = cache.check_integrity();
    ASSERT_TRUE(status.ok()) << status.message();
    std::vector<uint32_t> refs(pool.total(), 0);
    for (const BlockTable* t : tables) t->count_references(refs);
    for (uint32_t b = 0; b < pool.total(); ++b) ASSERT_EQ(refs[b], pool.refs(BlockId{b})) << "block " << b;
  }

  KvLayout layout;
  BlockPool pool;
  PrefixCache cache;
  std::vector<uint64_t> slots;
};

std::vector<TokenId> text(uint32_t n, TokenId first = 0) {
  std::vector<TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

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

TEST(BlockTable, FinishedPrefixIsFoundAgain) {
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
TEST(BlockTable, HitInsideABlockNeverWritesWhatOthersOwn) {
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
TEST(BlockTable, RollbackIntoAFullBlockDropsItFromTheCache) {
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

TEST(BlockTable, EqualBlocksComputedTwiceAreKeptOnce) {
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

TEST(BlockTable, SaltsNeverMeet) {
  Kv kv({0}, 16);
  const std::vector<TokenId> tokens = text(32);
  BlockTable a = kv.table("alice"), b = kv.table("bob"), c = kv.table("alice");
  kv.compute(a, tokens, 0, 32);
  EXPECT_EQ(kv.cache.lookup(b.salt(), tokens, 32).tokens, 0u);
  EXPECT_EQ(kv.cache.lookup(c.salt(), tokens, 32).tokens, 32u);
}

TEST(BlockTable, SaltsAreForgottenWithTheirLastBlock) {
  Kv kv({0}, 4);
  for (int i = 0; i < 100; ++i) {
    BlockTable t = kv.table("user " + std::to_string(i));
    ASSERT_TRUE(kv.compute(t, text(17), 0, 17));
  }
  EXPECT_LE(kv.cache.salt_count(), 4u);
  kv.check();
}

// Public fault: a block found by its hash alone served another prompt's KV.
TEST(BlockTable, CollidingHashesAreToldApart) {
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

// A hit needs the whole prefix of full layers, but of window layers only what the next row sees.
TEST(BlockTable, WindowLayersHitOnTheirLastWindowOnly) {
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

TEST(BlockTable, ModelOfWindowsOnlyCachesBoundedly) {
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

TEST(BlockTable, LeavesAreGivenUpBeforeTheirPrefix) {
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
