#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/kernel_test_util.h"
#include "kernels/quant_codec.h"
#include "kernels/table.h"

namespace kvasir {

// What a suite over attention runs with.
struct AttentionParam {
  Isa isa;
  KvType type;
};
inline std::vector<AttentionParam> attention_params() {
  std::vector<AttentionParam> params;
  for (const Isa isa : runnable_isas()) {
    for (const KvType type : {KvType::kF16, KvType::kInt8}) params.push_back({isa, type});
  }
  return params;
}
inline std::string attention_test_name(const testing::TestParamInfo<AttentionParam>& info) {
  std::string name(isa_name(info.param.isa));
  std::erase(name, '-');
  return name + "_" + std::string(kv_type_name(info.param.type));
}

// One sequence's K and V, or latent rows (`latent` of head_dim values, one head), in shuffled blocks. Every
// slot that was never written holds NaN (its scale does, if it is int8), as do the blocks of nobody.
class TestKv {
 public:
  TestKv(KvType type, uint32_t tokens, uint32_t block_size, uint32_t heads, uint32_t head_dim,
         uint32_t units = 1, uint32_t latent = 0)
      : tokens_(tokens), units_(units) {
    const uint32_t count = (tokens + block_size - 1) / block_size;
    const size_t plane = kv_element_bytes(type) * heads * block_size * head_dim;
    const size_t scales = kv_scale_bytes(type) * heads * block_size;
    const size_t stride = 2 * plane + 64 + scales + 64;
    memory_.assign((count + 1) * stride / sizeof(uint32_t), 0x7fc07e01u);  // NaN as a float and as halves
    planes_ = {.base = reinterpret_cast<std::byte*>(memory_.data()),
               .block_stride = stride,
               .block_size = block_size,
               .kv_heads = heads,
               .head_dim = head_dim,
               .latent = latent,
               .type = type,
               .v_offset = plane + 32,
               .scale_offset = 2 * plane + 64};
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
  // Element d of K and of V as stored.
  float k(uint32_t position, uint32_t head, uint32_t d) const {
    const uint32_t slot = position % planes_.block_size;
    if (planes_.latent != 0)
      return element(position, 0, slot * planes_.head_dim + d, d < planes_.latent ? 0 : 1);
    const size_t at = ((head * planes_.block_size + slot / 16 * 16) * planes_.head_dim) + d * 16 + slot % 16;
    return element(position, 0, at, head);
  }
  float v(uint32_t position, uint32_t head, uint32_t d) const {
    if (planes_.latent != 0) return k(position, head, d);
    const uint32_t slot = position % planes_.block_size;
    const size_t at = (head * planes_.block_size + slot) * planes_.head_dim + d;
    return element(position, planes_.v_offset, at, planes_.kv_heads + head);
  }

 private:
  float element(uint32_t position, size_t plane, size_t at, uint32_t scale_row) const {
    const std::byte* block = planes_.base + index_of(block_of(position)) * planes_.block_stride;
    if (planes_.type == KvType::kF16)
      return half_to_float(reinterpret_cast<const uint16_t*>(block + plane)[at]);
    const auto* scales = reinterpret_cast<const float*>(block + planes_.scale_offset);
    const float scale = scales[scale_row * planes_.block_size + position % planes_.block_size];
    return scale * reinterpret_cast<const int8_t*>(block + plane)[at];
  }
  void store(uint32_t position, uint32_t head, const float* k, const float* v) {
    kernel_table(Isa::kScalar)
        .store_kv(planes_, head, block_of(position), position % planes_.block_size, k, v);
  }

  uint32_t tokens_;
  uint32_t units_;
  std::vector<uint32_t> memory_;
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
  float sink = -std::numeric_limits<float>::infinity();  // plus the first value of a row's query
};

inline float sink_of(const AttentionKnobs& knobs, const std::vector<float>& q) {
  return knobs.sink + q[0];
}

// Arguments of a call and what they point to; the results are out, [rows][value_dim].
struct TestCall {
  TestCall(const TestKv& kv, const TestRows& rows, const AttentionKnobs& knobs, size_t begin, size_t end)
      : out((end - begin) * kv.planes().value_dim()) {
    for (size_t r = begin; r < end; ++r) {
      q.push_back(rows.q[r].data());
      results.push_back(out.data() + (r - begin) * kv.planes().value_dim());
    }
    sequence = {kv.table(), static_cast<uint32_t>(end - begin)};
    args.kv = kv.planes();
    args.kv_head = knobs.kv_head;
    args.sequences = &sequence;
    args.sequence_count = 1;
    args.block_stride = kv.units();
    args.rows = sequence.rows;
    args.q = q.data();
    args.out = results.data();
    args.positions = rows.positions.data() + begin;
    args.window = knobs.window;
    args.scale = knobs.scale;
    args.softcap = knobs.softcap;
    for (size_t r = begin; r < end; ++r) sinks.push_back(sink_of(knobs, rows.q[r]));
    if (std::isfinite(knobs.sink)) args.sinks = sinks.data();
  }
  TestCall(const TestCall&) = delete;

  void run(Isa isa) {
    static const AlignedBuffer scratch(kAttnScratchBytes);
    std::fill_n(scratch.as<uint32_t>().data(), scratch.size() / 4,
                0x7fc00000u);  // nothing may come from before
    args.scratch = scratch.data();
    kernel_table(isa).attention(args);
  }

  // The same in pieces: splits [cuts[i], cuts[i + 1]) each, last piece first, then merged row by row.
  void run_cut(Isa isa, const std::vector<uint32_t>& cuts) {
    const uint32_t width = attention_partial_floats(args.kv.value_dim());
    const size_t per_row = size_t{cuts.back() - cuts[0]} * width;
    std::vector<float> partials(args.rows * per_row, std::numeric_limits<float>::quiet_NaN());
    std::vector<float*> places(args.rows);
    args.partials = places.data();
    for (size_t i = cuts.size() - 1; i-- > 0;) {
      args.split_begin = cuts[i];
      args.split_end = cuts[i + 1];
      for (uint32_t r = 0; r < args.rows; ++r)
        places[r] = partials.data() + r * per_row + size_t{cuts[i] - cuts[0]} * width;
      run(isa);
    }
    for (uint32_t r = 0; r < args.rows; ++r) {
      const auto position = static_cast<uint32_t>(args.positions[r]);
      const uint32_t seen = args.window != 0 && position + 1 > args.window ? position + 1 - args.window : 0;
      const uint32_t first = seen / kAttnSplit;
      kernel_table(isa).merge_attention(partials.data() + r * per_row + size_t{first - cuts[0]} * width,
                                        position / kAttnSplit + 1 - first, args.kv.value_dim(), sinks[r],
                                        results[r]);
    }
  }

  std::vector<const float*> q;
  std::vector<float> out, sinks;
  std::vector<float*> results;
  AttentionSequence sequence;
  AttentionArgs args;
};

// Runs rows [begin, end) in one call; the result is [rows * value_dim].
inline std::vector<float> attend(Isa isa, const TestKv& kv, const TestRows& rows, const AttentionKnobs& knobs,
                                 size_t begin, size_t end) {
  TestCall call(kv, rows, knobs, begin, end);
  call.run(isa);
  return call.out;
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
