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

constexpr uint32_t kMaxQuery = std::max(kAttnMaxHeadDim, kMaxLatent + kMaxRotatedKey);
constexpr uint32_t kMaxValue = std::max(kAttnMaxHeadDim, kMaxLatent);

// Softmax over some positions: the largest score, the sum of exp(score - max), and V weighted by those.
struct Partial {
  float max = -math::kInfinity;
  float sum = 0.0f;
  std::array<float, kMaxValue> weighted{};
};

struct Row {
  const AttentionArgs& args;
  const BlockId* blocks;
  std::array<float, kMaxQuery> q;  // times the scale; for int8 rotated
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

// A position's K and V as planes hold them. What scores and weights are multiplied by is 1 where there are no
// scales.
template <class Element>
class PlaneSlot {
 public:
  PlaneSlot(const Row& row, uint32_t position) {
    const AttentionArgs& a = row.args;
    const uint32_t slot = position % a.kv.block_size;
    const BlockId block = block_of(row, position);
    k_ = k_tile<Element>(a.kv, a.kv_head, block, slot) + position % kKvTile;
    v_ = v_row<Element>(a.kv, a.kv_head, block, slot);
    if (a.kv.type != KvType::kInt8) return;
    k_scale_ = *kvasir::k_scale(a.kv, a.kv_head, block, slot);
    v_scale_ = *kvasir::v_scale(a.kv, a.kv_head, block, slot);
  }
  float k(uint32_t d) const { return widen(k_[size_t{d} * kKvTile]); }
  float v(uint32_t d) const { return widen(v_[d]); }
  float score_scale() const { return k_scale_; }
  float weight_scale() const { return v_scale_; }

 private:
  const Element* k_;
  const Element* v_;
  float k_scale_ = 1.0f, v_scale_ = 1.0f;
};

// The same as a latent row: V is the beginning of K. Of int8 each value is multiplied by its scale, and
// rounded, before anything is done with it.
template <class Element>
class LatentSlot {
 public:
  LatentSlot(const Row& row, uint32_t position) : latent_(row.args.kv.latent) {
    const KvPlanes& kv = row.args.kv;
    const uint32_t slot = position % kv.block_size;
    const BlockId block = block_of(row, position);
    values_ = latent_row<Element>(kv, block, slot);
    if (kv.type != KvType::kInt8) return;
    latent_scale_ = *kvasir::latent_scale(kv, block, slot);
    rotated_scale_ = *kvasir::rotated_scale(kv, block, slot);
  }
  float k(uint32_t d) const { return widen(values_[d]) * (d < latent_ ? latent_scale_ : rotated_scale_); }
  float v(uint32_t d) const { return k(d); }
  float score_scale() const { return 1.0f; }
  float weight_scale() const { return 1.0f; }

 private:
  uint32_t latent_;
  const Element* values_;
  float latent_scale_ = 1.0f, rotated_scale_ = 1.0f;
};

// sum of q[d] * k[d] over ascending d, times the scale of K, once.
template <class Slot>
float score(const Row& row, uint32_t position) {
  const AttentionArgs& a = row.args;
  const Slot slot(row, position);
  float s = 0.0f;
  for (uint32_t d = 0; d < a.kv.head_dim; ++d) s = std::fma(row.q[d], slot.k(d), s);
  s *= slot.score_scale();
  if (a.softcap != 0.0f) s = math::softcap(Float1{s}, Float1{a.softcap}).v;
  return s;
}

float exp1(float x) {
  return math::exp(Float1{x}).v;
}

// Adds the visible positions of [begin, end), a chunk, to the running softmax of a split. V of int8 is
// weighted by p times its scale, a product that is rounded once per position.
template <class Slot>
void add_chunk(const Row& row, uint32_t begin, uint32_t end, Partial& state,
               std::array<float, kPartials>& sums) {
  const AttentionArgs& a = row.args;
  std::array<float, kAttnChunk> scores{};
  float chunk_max = -math::kInfinity;
  for (uint32_t t = begin; t < end; ++t) {
    scores[t % kAttnChunk] = score<Slot>(row, t);
    chunk_max = std::max(chunk_max, scores[t % kAttnChunk]);
  }
  if (chunk_max > state.max) {
    const float factor = exp1(state.max - chunk_max);
    for (float& s : sums) s *= factor;
    for (uint32_t d = 0; d < a.kv.value_dim(); ++d) state.weighted[d] *= factor;
    state.max = chunk_max;
  }
  for (uint32_t t = begin; t < end; ++t) {
    float p = exp1(scores[t % kAttnChunk] - state.max);
    sums[t % kPartials] += p;
    const Slot slot(row, t);
    p *= slot.weight_scale();
    for (uint32_t d = 0; d < a.kv.value_dim(); ++d) {
      state.weighted[d] = std::fma(p, slot.v(d), state.weighted[d]);
    }
  }
}

// The same for how the call's K and V are stored.
void add_chunk(const Row& row, uint32_t begin, uint32_t end, Partial& state,
               std::array<float, kPartials>& sums) {
  const KvPlanes& kv = row.args.kv;
  const bool bytes = kv.type == KvType::kInt8;
  if (kv.latent == 0)
    return bytes ? add_chunk<PlaneSlot<int8_t>>(row, begin, end, state, sums)
                 : add_chunk<PlaneSlot<uint16_t>>(row, begin, end, state, sums);
  return bytes ? add_chunk<LatentSlot<int8_t>>(row, begin, end, state, sums)
               : add_chunk<LatentSlot<uint16_t>>(row, begin, end, state, sums);
}

// The softmax over the visible positions of [begin, end), a split.
Partial split_partial(const Row& row, uint32_t begin, uint32_t end) {
  Partial state;
  std::array<float, kPartials> sums{};
  const uint32_t first_chunk = begin / kAttnChunk * kAttnChunk;
  for (uint32_t chunk = first_chunk; chunk < end; chunk += kAttnChunk) {
    const uint32_t from = std::max(begin, chunk);
    const uint32_t to = std::min(end, chunk + kAttnChunk);
    add_chunk(row, from, to, state, sums);
  }
  state.sum = tree_sum(sums.data());
  return state;
}

// Joins the softmax over later positions to one over earlier ones.
void merge(float later_max, float later_sum, const float* later_weighted, uint32_t value_dim,
           Partial& total) {
  const float max = std::max(total.max, later_max);
  const float keep = exp1(total.max - max);
  const float take = exp1(later_max - max);
  total.max = max;
  total.sum = std::fma(later_sum, take, total.sum * keep);
  for (uint32_t d = 0; d < value_dim; ++d) {
    total.weighted[d] = std::fma(later_weighted[d], take, total.weighted[d] * keep);
  }
}

// A sink is a split whose only position has this score and a V of zeros.
void merge_sink(float sink, uint32_t value_dim, Partial& total) {
  static constexpr std::array<float, kMaxValue> kNothing{};
  if (sink != -math::kInfinity) merge(sink, 1.0f, kNothing.data(), value_dim, total);
}

void write_result(const Partial& total, uint32_t value_dim, float* out) {
  for (uint32_t d = 0; d < value_dim; ++d) out[d] = total.weighted[d] / total.sum;
}

void write_partial(const Partial& split, uint32_t value_dim, float* out) {
  out[0] = split.max;
  out[1] = split.sum;
  std::copy_n(split.weighted.begin(), value_dim, out + kAttnPartialHead);
}

void attend_row(const Row& row, uint32_t r) {
  const AttentionArgs& a = row.args;
  const uint32_t value_dim = a.kv.value_dim();
  Partial total;
  for (uint32_t i = row.first / kAttnSplit; i <= row.last / kAttnSplit; ++i) {
    if (i < a.split_begin || i >= a.split_end) continue;
    const uint32_t begin = std::max(row.first, i * kAttnSplit);
    const uint32_t end = std::min(row.last + 1, (i + 1) * kAttnSplit);
    const Partial split = split_partial(row, begin, end);
    if (a.partials != nullptr) {
      const size_t offset = size_t{i - a.split_begin} * attention_partial_floats(value_dim);
      write_partial(split, value_dim, a.partials[r] + offset);
    } else {
      merge(split.max, split.sum, split.weighted.data(), value_dim, total);
    }
  }
  if (a.partials != nullptr) return;
  if (a.sinks != nullptr) merge_sink(a.sinks[r], value_dim, total);
  write_result(total, value_dim, a.out[r]);
}

}  // namespace

void attention(const AttentionArgs& args) {
  const KvPlanes& kv = args.kv;
  const uint32_t dim = kv.head_dim;
  DCHECK(dim <= kMaxQuery && dim % kKvTile == 0 && kv.latent <= kMaxLatent && kv.block_size % kKvTile == 0);
  const uint32_t rotated = dim - kv.latent;  // of int8: the part whose K is stored rotated
  uint32_t r = 0;
  for (uint32_t i = 0; i < args.sequence_count; ++i) {
    for (const uint32_t stop = r + args.sequences[i].rows; r < stop; ++r) {
      Row row{args, args.sequences[i].blocks, {}};
      row.last = static_cast<uint32_t>(args.positions[r]);
      row.first = first_visible(row.last, args.window);
      for (uint32_t d = 0; d < dim; ++d) row.q[d] = args.q[r][d] * args.scale;
      if (kv.type == KvType::kInt8) rotate_head(row.q.data() + kv.latent, rotated, query_factor(rotated));
      attend_row(row, r);
    }
  }
}

void merge_attention(const float* partials, uint32_t count, uint32_t value_dim, float sink, float* out) {
  Partial total;
  for (uint32_t i = 0; i < count; ++i, partials += attention_partial_floats(value_dim)) {
    merge(partials[0], partials[1], partials + kAttnPartialHead, value_dim, total);
  }
  merge_sink(sink, value_dim, total);
  write_result(total, value_dim, out);
}

}  // namespace kvasir::scalar
