#include "kvcache/block_pool.h"

#include <gtest/gtest.h>

#include <random>

namespace kvasir {
namespace {

TEST(BlockPool, HandsOutEveryBlockOnce) {
  BlockPool pool(5);
  std::vector<BlockId> taken;
  for (int i = 0; i < 5; ++i) taken.push_back(pool.take());
  EXPECT_EQ(pool.free(), 0u);
  EXPECT_EQ(pool.owned(), 5u);
  for (uint32_t i = 0; i < 5; ++i) EXPECT_EQ(taken[i], BlockId{i});
  for (const BlockId id : taken) pool.release(id);
  EXPECT_EQ(pool.free(), 5u);
  EXPECT_TRUE(pool.check_integrity().ok());
}

TEST(BlockPool, RetainedBlocksAreCachedInOrderOfLastRelease) {
  BlockPool pool(3);
  const BlockId a = pool.take(), b = pool.take(), c = pool.take();
  for (const BlockId id : {a, b, c}) pool.retain(id);
  pool.release(b);
  pool.release(a);
  pool.release(c);
  EXPECT_EQ(pool.cached(), 3u);
  EXPECT_EQ(pool.oldest_cached(), b);
  pool.share(b);  // used again: it is now the youngest
  EXPECT_EQ(pool.owned(), 1u);
  pool.release(b);
  EXPECT_EQ(pool.oldest_cached(), a);
  pool.forget(a);
  EXPECT_EQ(pool.free(), 1u);
  EXPECT_EQ(pool.oldest_cached(), c);
  EXPECT_TRUE(pool.check_integrity().ok());
}

TEST(BlockPool, ForgottenWhileOwnedBecomesFreeOnRelease) {
  BlockPool pool(1);
  const BlockId a = pool.take();
  pool.share(a);
  pool.retain(a);
  pool.forget(a);
  pool.release(a);
  EXPECT_EQ(pool.owned(), 1u);
  pool.release(a);
  EXPECT_EQ(pool.free(), 1u);
}

TEST(BlockPool, RandomOperationsAddUp) {
  std::mt19937 rng(1);
  BlockPool pool(40);
  std::vector<BlockId> owned;  // once per reference
  for (int step = 0; step < 20000; ++step) {
    const uint32_t op = rng() % 5;
    if (op == 0 && pool.free() > 0) {
      owned.push_back(pool.take());
    } else if (op == 1 && !owned.empty()) {
      owned.push_back(owned[rng() % owned.size()]);
      pool.share(owned.back());
    } else if (op == 2 && !owned.empty()) {
      pool.retain(owned[rng() % owned.size()]);
    } else if (op == 3 && pool.cached() > 0) {
      pool.forget(pool.oldest_cached());
    } else if (!owned.empty()) {
      std::swap(owned[rng() % owned.size()], owned.back());
      pool.release(owned.back());
      owned.pop_back();
    }
    const Status status = pool.check_integrity();
    ASSERT_TRUE(status.ok()) << status.message();
  }
}

}  // namespace
}  // namespace kvasir
