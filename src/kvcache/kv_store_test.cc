#include "kvcache/kv_store.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <vector>

#include "kvcache/kv_rig.h"

namespace kvasir {
namespace {

KvLayout blocks_of_64_kib() {
  const std::vector<KvLayerSpec> layers(16,
                                        {4, 16, 0});  // 16 layers x 16 tokens x 4 heads x 16 x 2 x 2 bytes
  return KvLayout::make(layers, kBlock).value();
}

// How many of a block's pages have memory.
size_t pages_with_memory(const KvStore& store, uint32_t block) {
  const auto bytes = store.block_bytes(BlockId{block});
  std::vector<unsigned char> has(bytes.size() / 4096);
  EXPECT_EQ(mincore(bytes.data(), bytes.size(), has.data()), 0);
  return static_cast<size_t>(
      std::count_if(has.begin(), has.end(), [](unsigned char c) { return (c & 1) != 0; }));
}

TEST(KvStore, ReadiesBlocksInOrderAndOnlyThoseAskedFor) {
  KvStore store(blocks_of_64_kib(), 16);  // 1 MiB: too small for a huge page
  ASSERT_EQ(store.layout().block_bytes(), 65536u);
  ASSERT_EQ(pages_with_memory(store, 0), 0u);
  if (!store.ready_one(1)) GTEST_SKIP() << "this kernel has no MADV_POPULATE_WRITE";
  EXPECT_EQ(pages_with_memory(store, 0), 16u);
  EXPECT_EQ(pages_with_memory(store, 1), 0u);
  EXPECT_FALSE(store.ready_one(1));
  EXPECT_TRUE(store.ready_one(3));
  EXPECT_EQ(pages_with_memory(store, 1), 16u);
  EXPECT_TRUE(store.ready_one(3));
  EXPECT_FALSE(store.ready_one(3));
  EXPECT_EQ(pages_with_memory(store, 3), 0u);
}

TEST(KvStore, ReadyingABlockLeavesWhatItHolds) {
  KvStore store(blocks_of_64_kib(), 4);
  std::ranges::fill(store.block_bytes(BlockId{0}), std::byte{7});
  std::ranges::fill(store.block_bytes(BlockId{1}), std::byte{9});
  for (int i = 0; i < 4; ++i) (void)store.ready_one(100);
  EXPECT_FALSE(store.ready_one(100));
  const auto all = [&](uint32_t block, int value) {
    return std::ranges::all_of(store.block_bytes(BlockId{block}),
                               [&](std::byte b) { return b == std::byte(value); });
  };
  EXPECT_TRUE(all(0, 7));
  EXPECT_TRUE(all(1, 9));
  EXPECT_TRUE(all(2, 0));
}

}  // namespace
}  // namespace kvasir
