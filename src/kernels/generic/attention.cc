#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "kernels/generic/kv_address.h"
#include "kernels/generic/math.h"
#include "kernels/generic/reduce.h"
#include "kernels/generic/rotate.h"
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
  HeadVector q;  // times the scale; for int8 rotated
  uint32_t first = 0;
  uint32_t last = 0;  // positions it sees, both included
};

BlockId block_of(const Row& row, uint32_t position) {
  return row.blocks[position / row.args.kv.block_size * row.args.block_stride];
}

float widen(uint16_t half) {
  return half_to_float(half);
}
float widen(int8_t value) {
  return static_cast<float>(value);
}

// sum of q[d] * k[d] over ascending d; of int8 K times its scale, once.
template <class Element>
float score(const Row& row, uint32_t position) {
  const AttentionArgs& a = row.args;
  const uint32_t slot = position % a.kv.block_size;
  const BlockId block = block_of(row, position);
  const Element* k = k_tile<Element>(a.kv, a.kv_head, block, slot) + position % kKvTile;
  float s = 0.0f;
  for (uint32_t d = 0; d < a.kv.head_dim; ++d) s = std::fma(row.q[d], widen(k[size_t{d} * kKvTile]), s);
  if (a.kv.type == KvType::kInt8) s *= *k_scale(a.kv, a.kv_head, block, slot);
  if (a.softcap != 0.0f) s = math::softcap(Float1{s}, Float1{a.softcap}).v;
  return s;
}

float exp1(float x) {
  return math::exp(Float1{x}).v;
}

// Adds the visible positions of [begin, end), a chunk, to the running softmax of a split. V of int8 is
// weighted by p times its scale, a product that is rounded once per position.
template <class Element>
void add_chunk(const Row& row, uint32_t begin, uint32_t end, Partial& state,
               std::array<float, kPartials>& sums) {
  const AttentionArgs& a = row.args;
  std::array<float, kAttnChunk> scores{};
  float chunk_max = -math::kInfinity;
  for (uint32_t t = begin; t < end; ++t) {
    scores[t % kAttnChunk] = score<Element>(row, t);
    chunk_max = std::max(chunk_max, scores[t % kAttnChunk]);
  }
  if (chunk_max > state.max) {
    const float factor = exp1(state.max - chunk_max);
    for (float& s : sums) s *= factor;
    for (uint32_t d = 0; d < a.kv.head_dim; ++d) state.weighted[d] *= factor;
    state.max = chunk_max;
  }
  for (uint32_t t = begin; t < end; ++t) {
    float p = exp1(scores[t % kAttnChunk] - state.max);
    sums[t % kPartials] += p;
    const uint32_t slot = t % a.kv.block_size;
    if (a.kv.type == KvType::kInt8) p *= *v_scale(a.kv, a.kv_head, block_of(row, t), slot);
    const Element* v = v_row<Element>(a.kv, a.kv_head, block_of(row, t), slot);
    for (uint32_t d = 0; d < a.kv.head_dim; ++d) {
      state.weighted[d] = std::fma(p, widen(v[d]), state.weighted[d]);
    }
  }
}

// The softmax over the visible positions of [begin, end), a split.
Partial split_partial(const Row& row, uint32_t begin, uint32_t end) {
  Partial state;
  std::array<float, kPartials> sums{};
  const uint32_t first_chunk = begin / kAttnChunk * kAttnChunk;
  for (uint32_t chunk = first_chunk; chunk < end; chunk += kAttnChunk) {
    const uint32_t from = std::max(begin, chunk);
    const uint32_t to = std::min(end, chunk + kAttnChunk);
    if (row.args.kv.type == KvType::kInt8)
      add_chunk<int8_t>(row, from, to, state, sums);
    else
      add_chunk<uint16_t>(row, from, to, state, sums);
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

// A sink is a split whose only position has this score and a V of zeros.
void merge_sink(float sink, uint32_t head_dim, Partial& total) {
  static constexpr HeadVector kNothing{};
  if (sink != -math::kInfinity) merge(sink, 1.0f, kNothing.data(), head_dim, total);
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
  if (a.partials != nullptr) return;
  if (a.sinks != nullptr) merge_sink(a.sinks[r], head_dim, total);
  write_result(total, head_dim, a.out[r]);
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
      if (args.kv.type == KvType::kInt8) rotate_head(row.q.data(), head_dim, query_factor(head_dim));
      attend_row(row, r);
    }
  }
}

void merge_attention(const float* partials, uint32_t count, uint32_t head_dim, float sink, float* out) {
  Partial total;
  for (uint32_t i = 0; i < count; ++i, partials += attention_partial_floats(head_dim)) {
    merge(partials[0], partials[1], partials + kAttnPartialHead, head_dim, total);
  }
  merge_sink(sink, head_dim, total);
  write_result(total, head_dim, out);
}

}  // namespace kvasir::scalar
