#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "kernels/generic/kv_address.h"
#include "kernels/generic/math.h"
#include "kernels/generic/reduce.h"
#include "kernels/generic/scalar_float.h"
#include "kernels/isa/float_functions.h"
#include "kernels/quant_codec.h"

// The arithmetic of one attention row, one operation at a time: the definition that the tiled kernels equal.
// See docs/numerics.md, rule 4, and Milakov and Gimelshein, "Online normalizer calculation for softmax"
// (2018).
namespace kvasir::scalar {
namespace {

using HeadVector = std::array<float, kAttnMaxHeadDim>;

// Softmax over some positions: the largest score, the sum of exp(score - max), and V weighted by those.
struct Partial {
  float max = -math::kInfinity;
  float sum = 0.0f;
  HeadVector weighted{};
};

struct Row {
  const AttentionArgs& args;
  const BlockId* blocks;
  HeadVector q;  // times the scale
  uint32_t first = 0;
  uint32_t last = 0;  // positions it sees, both included
};

BlockId block_of(const Row& row, uint32_t position) {
  return row.blocks[position / row.args.kv.block_size * row.args.block_stride];
}

float score(const Row& row, uint32_t position) {
  const AttentionArgs& a = row.args;
  const uint32_t slot = position % a.kv.block_size;
  const uint16_t* k = k_tile(a.kv, a.kv_head, block_of(row, position), slot) + position % kKvTile;
  float s = 0.0f;
  for (uint32_t d = 0; d < a.kv.head_dim; ++d) {
    s = std::fma(row.q[d], half_to_float(k[size_t{d} * kKvTile]), s);
  }
  if (a.softcap != 0.0f) s = math::softcap(Float1{s}, Float1{a.softcap}).v;
  return s;
}

float exp1(float x) {
  return math::exp(Float1{x}).v;
}

// Adds the visible positions of [begin, end), a chunk, to the running softmax of a split.
void add_chunk(const Row& row, uint32_t begin, uint32_t end, Partial& state,
               std::array<float, kPartials>& sums) {
  const AttentionArgs& a = row.args;
  std::array<float, kAttnChunk> scores{};
  float chunk_max = -math::kInfinity;
  for (uint32_t t = begin; t < end; ++t) {
    scores[t % kAttnChunk] = score(row, t);
    chunk_max = std::max(chunk_max, scores[t % kAttnChunk]);
  }
  if (chunk_max > state.max) {
    const float factor = exp1(state.max - chunk_max);
    for (float& s : sums) s *= factor;
    for (uint32_t d = 0; d < a.kv.head_dim; ++d) state.weighted[d] *= factor;
    state.max = chunk_max;
  }
  for (uint32_t t = begin; t < end; ++t) {
    const float p = exp1(scores[t % kAttnChunk] - state.max);
    sums[t % kPartials] += p;
    const uint16_t* v = v_row(a.kv, a.kv_head, block_of(row, t), t % a.kv.block_size);
    for (uint32_t d = 0; d < a.kv.head_dim; ++d) {
      state.weighted[d] = std::fma(p, half_to_float(v[d]), state.weighted[d]);
    }
  }
}

// The softmax over the visible positions of [begin, end), a split.
Partial split_partial(const Row& row, uint32_t begin, uint32_t end) {
  Partial state;
  std::array<float, kPartials> sums{};
  const uint32_t first_chunk = begin / kAttnChunk * kAttnChunk;
  for (uint32_t chunk = first_chunk; chunk < end; chunk += kAttnChunk) {
    add_chunk(row, std::max(begin, chunk), std::min(end, chunk + kAttnChunk), state, sums);
  }
  state.sum = tree_sum(sums.data());
  return state;
}

// Joins the softmax over later positions to one over earlier ones.
void merge(float later_max, float later_sum, const float* later_weighted, uint32_t head_dim, Partial& total) {
  const float max = std::max(total.max, later_max);
  const float keep = exp1(total.max - max);
  const float take = exp1(later_max - max);
  total.max = max;
  total.sum = std::fma(later_sum, take, total.sum * keep);
  for (uint32_t d = 0; d < head_dim; ++d) {
    total.weighted[d] = std::fma(later_weighted[d], take, total.weighted[d] * keep);
  }
}

void write_result(const Partial& total, uint32_t head_dim, float* out) {
  for (uint32_t d = 0; d < head_dim; ++d) out[d] = total.weighted[d] / total.sum;
}

void write_partial(const Partial& split, uint32_t head_dim, float* out) {
  out[0] = split.max;
  out[1] = split.sum;
  std::copy_n(split.weighted.begin(), head_dim, out + kAttnPartialHead);
}

void attend_row(const Row& row, uint32_t r) {
  const AttentionArgs& a = row.args;
  const uint32_t head_dim = a.kv.head_dim;
  Partial total;
  for (uint32_t i = row.first / kAttnSplit; i <= row.last / kAttnSplit; ++i) {
    if (i < a.split_begin || i >= a.split_end) continue;
    const uint32_t begin = std::max(row.first, i * kAttnSplit);
    const uint32_t end = std::min(row.last + 1, (i + 1) * kAttnSplit);
    const Partial split = split_partial(row, begin, end);
    if (a.partials != nullptr) {
      const size_t offset = size_t{i - a.split_begin} * attention_partial_floats(head_dim);
      write_partial(split, head_dim, a.partials[r] + offset);
    } else {
      merge(split.max, split.sum, split.weighted.data(), head_dim, total);
    }
  }
  if (a.partials == nullptr) write_result(total, head_dim, a.out[r]);
}

}  // namespace

void attention(const AttentionArgs& args) {
  const uint32_t head_dim = args.kv.head_dim;
  DCHECK(head_dim <= kAttnMaxHeadDim && head_dim % kKvTile == 0 && args.kv.block_size % kKvTile == 0);
  uint32_t r = 0;
  for (uint32_t i = 0; i < args.sequence_count; ++i) {
    for (const uint32_t stop = r + args.sequences[i].rows; r < stop; ++r) {
      Row row{args, args.sequences[i].blocks, {}};
      row.last = static_cast<uint32_t>(args.positions[r]);
      row.first = first_visible(row.last, args.window);
      for (uint32_t d = 0; d < head_dim; ++d) row.q[d] = args.q[r][d] * args.scale;
      attend_row(row, r);
    }
  }
}

void merge_attention(const float* partials, uint32_t count, uint32_t head_dim, float* out) {
  Partial total;
  for (uint32_t i = 0; i < count; ++i, partials += attention_partial_floats(head_dim)) {
    merge(partials[0], partials[1], partials + kAttnPartialHead, head_dim, total);
  }
  write_result(total, head_dim, out);
}

void store_kv(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot, const float* k,
              const float* v) {
  uint16_t* k_out = k_tile(kv, kv_head, block, slot) + slot % kKvTile;
  uint16_t* v_out = v_row(kv, kv_head, block, slot);
  for (uint32_t d = 0; d < kv.head_dim; ++d) {
    k_out[size_t{d} * kKvTile] = float_to_half(k[d]);
    v_out[d] = float_to_half(v[d]);
  }
}

}  // namespace kvasir::scalar
