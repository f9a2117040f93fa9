#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/dtype.h"
#include "base/kv_type.h"
#include "base/numa.h"
#include "base/philox.h"
#include "base/result.h"
#include "base/thread_pool.h"

namespace kvasir {
namespace {

// Known answers of the Random123 distribution (kat_vectors, philox4x32 10).
TEST(Philox, MatchesPublishedKnownAnswers) {
  EXPECT_EQ(philox4x32({0, 0, 0, 0}, {0, 0}),
            (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  const uint32_t f = 0xffffffff;
  EXPECT_EQ(philox4x32({f, f, f, f}, {f, f}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(ThreadPool, BarriersOrderWritesAcrossThreads) {
  ThreadPool pool(3);
  std::vector<int> cells(3, 0);
  std::atomic<int> errors{0};
  pool.run([&](Worker& w) {
    for (int round = 1; round <= 2000; ++round) {
      cells[w.index()] = round;
      w.barrier();
      for (int c : cells)
        if (c != round) ++errors;
      w.barrier();
    }
  });
  EXPECT_EQ(errors.load(), 0);
}

TEST(ThreadPool, RunsEveryWorkerOncePerRegion) {
  ThreadPool pool(4);
  for (int i = 0; i < 500; ++i) {
    std::atomic<uint32_t> mask{0};
    pool.run([&](Worker& w) { mask |= 1u << w.index(); });
    ASSERT_EQ(mask.load(), 0b1111u);
  }
}

TEST(ThreadPool, DealsGiveEveryItemOnceInWholePieces) {
  for (const uint32_t threads : {1u, 2u, 5u, 12u}) {
    ThreadPool pool(threads);
    for (const uint32_t items : {0u, 1u, 7u, 64u, 257u}) {
      std::vector<std::atomic<int>> first(items), second(items);
      pool.run([&](Worker& w) {
        for (int round = 0; round < 3; ++round) {
          Deal a = w.deal(items, 2, 4), b = w.deal(items, 1, 3);
          for (uint64_t begin, end; a.next(begin, end);) {
            EXPECT_EQ(begin % 2, 0u);
            EXPECT_TRUE(end - begin <= 4 && (end % 2 == 0 || end == items));
            for (uint64_t i = begin; i < end; ++i) ++first[i];
          }
          for (uint64_t begin, end; b.next(begin, end);)
            for (uint64_t i = begin; i < end; ++i) ++second[i];
          w.barrier();
        }
      });
      for (uint32_t i = 0; i < items; ++i)
        EXPECT_TRUE(first[i] == 3 && second[i] == 3) << i << " of " << items;
    }
  }
}

TEST(ThreadPool, WhatOneIsSlowWithOthersTake) {
  ThreadPool pool(3);
  std::atomic<uint32_t> by_others{0}, mine{0};
  pool.run([&](Worker& w) {
    Deal deal = w.deal(12, 1, 1);
    for (uint64_t begin, end; deal.next(begin, end);) {
      if (w.index() != 2) {
        ++by_others;
        continue;
      }
      ++mine;
      while (by_others < 11) std::this_thread::yield();  // holds one piece until all others are taken
    }
  });
  EXPECT_EQ(mine + by_others, 12u);
  EXPECT_LE(mine, 1u);
}

TEST(ThreadPool, SharesCoverEverythingOnceInWholeGrains) {
  ThreadPool pool(3);
  for (uint64_t items : {0u, 1u, 15u, 16u, 100u, 576u}) {
    std::vector<std::atomic<int>> hits(items);
    pool.run([&](Worker& w) {
      auto [begin, end] = w.share(items, 16);
      for (uint64_t i = begin; i < end; ++i) ++hits[i];
    });
    for (auto& h : hits) EXPECT_EQ(h.load(), 1);
  }
}

TEST(DType, KnowsItsBlocks) {
  EXPECT_EQ(dtype_bytes(DType::kQ4_K, 512), 288u);
  EXPECT_EQ(find_dtype(4), nullptr);
}

Result<int> half(int x) {
  if (x % 2 != 0) return invalid_argument("odd");
  return x / 2;
}

Result<int> quarter(int x) {
  KVASIR_ASSIGN_OR_RETURN(int h, half(x));
  return half(h);
}

TEST(Result, CarriesValueOrReason) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_EQ(quarter(6).status().message(), "odd");
}

TEST(KvType, NamesAndSizes) {
  EXPECT_EQ(parse_kv_type("auto").value(), KvType::kF16);
  EXPECT_EQ(parse_kv_type("float16").value(), KvType::kF16);
  EXPECT_EQ(parse_kv_type(kv_type_name(KvType::kInt8)).value(), KvType::kInt8);
  EXPECT_NE(parse_kv_type("INT8").status().message().find("INT8"), std::string::npos);
  EXPECT_FALSE(parse_kv_type("").ok());
}

TEST(Numa, ReadsListsOfNodes) {
  using Nodes = std::vector<uint32_t>;
  EXPECT_EQ(parse_node_list("0"), Nodes{0});
  EXPECT_EQ(parse_node_list("0-1,3"), (Nodes{0, 1, 3}));
  EXPECT_EQ(parse_node_list("1023"), Nodes{1023});
  for (const char* wrong : {"", "a", "0-", "-1", "2-1", "0,", "0 1", "1024", "0-4294967295"})
    EXPECT_FALSE(parse_node_list(wrong).has_value()) << wrong;
}

// Whatever this machine has, memory stays usable and a second call finds the policy of the first.
TEST(Numa, InterleavesOnceWhereThereAreNodes) {
  const MemoryNodes first = interleave_memory(), second = interleave_memory();
  EXPECT_GE(first.nodes, 1u);
  EXPECT_EQ(first.nodes, second.nodes);
  EXPECT_EQ(first.interleaved || !first.reason.empty(), first.nodes > 1);
  EXPECT_FALSE(second.interleaved);
  const std::vector<char> touched(1 << 20, 1);
  EXPECT_EQ(touched.back(), 1);
}

TEST(AlignedBuffer, MovesItsMemory) {
  AlignedBuffer a(4096);
  a.as<float>()[0] = 1.0f;
  AlignedBuffer b = std::move(a);
  EXPECT_EQ(b.as<float>()[0], 1.0f);
  EXPECT_EQ(a.data(), nullptr);
}

}  // namespace
}  // namespace kvasir
