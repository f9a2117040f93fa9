#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "kvcache/block_table.h"

namespace kvasir {

inline constexpr uint32_t kBlock = 16;

inline uint64_t prefix_value(const std::vector<TokenId>& tokens, uint32_t position) {
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

inline std::vector<TokenId> text(uint32_t n, TokenId first = 0) {
  std::vector<TokenId> tokens(n);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

}  // namespace kvasir
