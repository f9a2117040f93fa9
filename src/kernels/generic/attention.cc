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
  HeadVector q;  // times the scale
  uint32_t first = 0;
  uint32_t last = 0;  // positions it sees, both included
};

BlockId block_of(const AttentionArgs& a, uint32_t position) {
  return a.blocks[position / a.kv.block_size * a.block_stride];
}

float score(const Row& row, uint32_t position) {
  const AttentionArgs& a = row.args;
  const uint32_t slot = position % a.kv.block_size;
  const uint16_t* k = k_tile(a.kv, a.kv_head, block_of(a, position), slot) + position % kKvTile;
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
    const uint16_t* v = v_row(a.kv, a.kv_head, block_of(a, t), t % a.kv.block_size);
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
void merge(const Partial& later, uint32_t head_dim, Partial& total) {
  const float max = std::max(total.max, later.max);
  const float keep = exp1(total.max - max);
  const float take = exp1(later.max - max);
  total.max = max;
  total.sum = std::fma(later.sum, take, total.sum * keep);
  for (uint32_t d = 0; d < head_dim; ++d) {
    total.weighted[d] = std::fma(later.weighted[d], take, total.weighted[d] * keep);
  }
}

}  // namespace

void attention(const AttentionArgs& args) {
  const uint32_t head_dim = args.kv.head_dim;
  DCHECK(head_dim <= kAttnMaxHeadDim && head_dim % kKvTile == 0 && args.kv.block_size % kKvTile == 0);
  for (uint32_t r = 0; r < args.rows; ++r) {
    Row row{args, {}};
    row.last = static_cast<uint32_t>(args.positions[r]);
    row.first = first_visible(row.last, args.window);
    for (uint32_t d = 0; d < head_dim; ++d) row.q[d] = args.q[r][d] * args.scale;

    Partial total;
    const uint32_t first_split = row.first / kAttnSplit * kAttnSplit;
    for (uint32_t split = first_split; split <= row.last; split += kAttnSplit) {
      const uint32_t begin = std::max(row.first, split);
      const uint32_t end = std::min(row.last + 1, split + kAttnSplit);
      merge(split_partial(row, begin, end), head_dim, total);
    }
    for (uint32_t d = 0; d < head_dim; ++d) args.out[r][d] = total.weighted[d] / total.sum;
  }
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
