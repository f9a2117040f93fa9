#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernel_test_util.h"
#include "kernels/table.h"

namespace kvasir {

inline constexpr uint16_t kHalfNan = 0x7e01;

// One sequence's K and V in shuffled blocks. Every slot that was never written holds NaN, as do the blocks of
// nobody.
class TestKv {
 public:
  TestKv(uint32_t tokens, uint32_t block_size, uint32_t heads, uint32_t head_dim, uint32_t units = 1)
      : tokens_(tokens), units_(units), plane_(size_t{heads} * block_size * head_dim) {
    const uint32_t count = (tokens + block_size - 1) / block_size;
    const size_t stride = 2 * plane_ + 32;
    memory_.assign((count + 1) * stride, kHalfNan);
    planes_ = {memory_.data(), stride, block_size, heads, head_dim, plane_ + 16};
    std::vector<uint32_t> ids(count);
    std::iota(ids.begin(), ids.end(), 1);
    std::shuffle(ids.begin(), ids.end(), std::mt19937(tokens));
    for (const uint32_t id : ids) {
      table_.push_back(BlockId{id});
      table_.insert(table_.end(), units - 1, kNoBlock);
    }
  }

  // Writes the token at `position` for every head: values depend on (seed, position, head) alone.
  void write(uint32_t position, uint32_t seed, float deviation = 1.0f) {
    const uint32_t dim = planes_.head_dim;
    for (uint32_t h = 0; h < planes_.kv_heads; ++h) {
      const std::vector<float> kv =
          normal_values(2 * size_t{dim}, deviation, seed + position * 131 + h * 7919);
      store(position, h, kv.data(), kv.data() + dim);
    }
  }
  void write_all(uint32_t seed, float deviation = 1.0f) {
    for (uint32_t p = 0; p < tokens_; ++p) write(p, seed, deviation);
  }
  // Makes a token's K and V NaN again.
  void poison(uint32_t position) {
    const std::vector<float> nan(planes_.head_dim, std::numeric_limits<float>::quiet_NaN());
    for (uint32_t h = 0; h < planes_.kv_heads; ++h) store(position, h, nan.data(), nan.data());
  }
  // Gives back every block that lies wholly below `position`, and poisons what else lies below it.
  void leave_window(uint32_t position) {
    for (uint32_t p = 0; p < position; ++p) {
      BlockId& block = table_[p / planes_.block_size * units_];
      if (block != kNoBlock) poison(p);
      if (p % planes_.block_size == planes_.block_size - 1) block = kNoBlock;
    }
  }

  const KvPlanes& planes() const { return planes_; }
  const BlockId* table() const { return table_.data(); }
  uint32_t units() const { return units_; }
  BlockId block_of(uint32_t position) const { return table_[position / planes_.block_size * units_]; }
  uint32_t tokens() const { return tokens_; }

 private:
  void store(uint32_t position, uint32_t head, const float* k, const float* v) {
    kernel_table(Isa::kScalar)
        .store_kv(planes_, head, block_of(position), position % planes_.block_size, k, v);
  }

  uint32_t tokens_;
  uint32_t units_;
  size_t plane_;
  std::vector<uint16_t> memory_;
  std::vector<BlockId> table_;
  KvPlanes planes_;
};

// Query rows of one KV head: (position, query head) pairs, values by (seed, position, query head).
struct TestRows {
  std::vector<int32_t> positions;
  std::vector<std::vector<float>> q;

  TestRows() = default;
  // `group` query heads of each token in [begin, end).
  TestRows(uint32_t begin, uint32_t end, uint32_t group, uint32_t head_dim, uint32_t seed,
           float deviation = 1.0f) {
    for (uint32_t p = begin; p < end; ++p) {
      for (uint32_t g = 0; g < group; ++g) add(p, g, head_dim, seed, deviation);
    }
  }
  void add(uint32_t position, uint32_t query_head, uint32_t head_dim, uint32_t seed, float deviation = 1.0f) {
    positions.push_back(static_cast<int32_t>(position));
    q.push_back(normal_values(head_dim, deviation, seed + position * 977 + query_head * 31));
  }
  size_t size() const { return q.size(); }
};

struct AttentionKnobs {
  uint32_t kv_head = 0;
  uint32_t window = 0;
  float softcap = 0.0f;
  float scale = 0.125f;
};

// Runs rows [begin, end) in one call; the result is [rows * head_dim].
inline std::vector<float> attend(Isa isa, const TestKv& kv, const TestRows& rows, const AttentionKnobs& knobs,
                                 size_t begin, size_t end) {
  static const AlignedBuffer scratch(kAttnScratchBytes);
  std::fill_n(scratch.as<uint32_t>().data(), scratch.size() / 4,
              0x7fc00000u);  // nothing may come from before
  const uint32_t dim = kv.planes().head_dim;
  std::vector<float> out((end - begin) * dim);
  std::vector<const float*> q;
  std::vector<float*> results;
  for (size_t r = begin; r < end; ++r) {
    q.push_back(rows.q[r].data());
    results.push_back(out.data() + (r - begin) * dim);
  }
  AttentionArgs args;
  args.kv = kv.planes();
  args.kv_head = knobs.kv_head;
  args.blocks = kv.table();
  args.block_stride = kv.units();
  args.rows = static_cast<uint32_t>(end - begin);
  args.q = q.data();
  args.out = results.data();
  args.positions = rows.positions.data() + begin;
  args.window = knobs.window;
  args.scale = knobs.scale;
  args.softcap = knobs.softcap;
  args.scratch = scratch.data();
  kernel_table(isa).attention(args);
  return out;
}

// All rows, `per_call` at a time.
inline std::vector<float> attend_all(Isa isa, const TestKv& kv, const TestRows& rows,
                                     const AttentionKnobs& knobs, size_t per_call = kAttnMaxRows) {
  std::vector<float> out;
  for (size_t r = 0; r < rows.size(); r += per_call) {
    const std::vector<float> part = attend(isa, kv, rows, knobs, r, std::min(rows.size(), r + per_call));
    out.insert(out.end(), part.begin(), part.end());
  }
  return out;
}

}  // namespace kvasir
