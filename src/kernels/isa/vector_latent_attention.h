#pragma once

#include <cstdint>

#include "base/check.h"
#include "kernels/isa/latent_state.h"
#include "kernels/isa/vector_attention.h"
#include "kernels/isa/vector_latent_tile.h"
#include "kernels/isa/vector_rotate.h"

// A call of attention over latent rows (multi-head latent attention in its absorbed form, DeepSeek-V2, arXiv
// 2405.04434, section 2.1) over V, sixteen floats of an instruction set: a chunk's rows become floats once,
// and then all tiles, sixteen query heads each, go through them. Included only by isa/<isa>/attention.cc.
namespace kvasir::vec {

template <class V>
void begin_latent_split(const LatentState& s, uint32_t tile) {
  const LatentRows& rows = s.rows[tile];
  V::broadcast(-math::kInfinity).store(rows.max);
  clear<V>(rows.sums, size_t{16} * kLatentLanes);
  clear<V>(rows.weighted, size_t{s.latent} * kLatentLanes);
}

// The queries of a tile, times the scale and, for int8, the rotated part rotated: [width][lanes].
template <class V>
void pack_latent_queries(const AttentionArgs& a, const LatentState& s, uint32_t tile) {
  alignas(64) float query[kMaxLatent + kMaxRotatedKey];
  const LatentTile& t = s.tile[tile];
  const uint32_t rotated = s.width - s.latent;
  const uint32_t block = rotated_block(rotated);
  for (uint32_t lane = 0; lane < kLatentLanes; ++lane) {
    const float* q = a.q[t.begin + (lane < t.rows ? lane : t.rows - 1)];
    for (uint32_t d = 0; d < s.width; d += 16) (V::load(q + d) * V::broadcast(a.scale)).store(query + d);
    if (a.kv.type == KvType::kInt8)
      rotate_head<V>(q + s.latent, rotated, a.scale, block == 0 ? 1.0f : 1.0f / static_cast<float>(block),
                     query + s.latent);
    float* packed = s.rows[tile].q + lane;
    for (uint32_t d = 0; d < s.width; ++d) packed[size_t{d} * kLatentLanes] = query[d];
  }
}

// Visible ranges, queries, empty totals and splits.
template <class V>
void begin_latent_call(const AttentionArgs& a, const LatentState& s) {
  for (uint32_t i = 0; i < s.tiles; ++i) {
    const LatentTile& t = s.tile[i];
    const LatentRows& rows = s.rows[i];
    for (uint32_t lane = 0; lane < kLatentLanes; ++lane) {
      const auto position = static_cast<uint32_t>(a.positions[t.begin + (lane < t.rows ? lane : t.rows - 1)]);
      rows.first[lane] = first_visible(position, a.window);
      rows.end[lane] = position + 1;
      DCHECK(a.shared == 0 || (rows.first[lane] == 0 && rows.end[lane] > a.shared));
    }
    pack_latent_queries<V>(a, s, i);
    V::broadcast(-math::kInfinity).store(rows.total_max);
    V::broadcast(0.0f).store(rows.total_sum);
    clear<V>(rows.total_weighted, size_t{s.latent} * kLatentLanes);
    begin_latent_split<V>(s, i);
  }
}

// The fixed tree of generic/reduce.h over the sixteen partial sums of each lane.
template <class V>
KVASIR_INLINE V tree_sum_of_lanes(const float* sums) {
  V s[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i)
    s[i] = V::load(sums + i * static_cast<int>(kLatentLanes)) +
           V::load(sums + (i + 8) * static_cast<int>(kLatentLanes));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) s[i] = s[i] + s[i + 4];
  s[0] = s[0] + s[2];
  s[1] = s[1] + s[3];
  return s[0] + s[1];
}

// Lane `lane` of `n` vectors to n neighbouring floats.
static inline void take_lane(const float* lanes, uint32_t lane, uint32_t n, float* out) {
  for (uint32_t d = 0; d < n; ++d) out[d] = lanes[size_t{d} * kLatentLanes + lane];
}

// Joins the split's softmax to that of the splits before, in the lanes that `sees` marks with 1.
template <class V>
void merge_latents(const LatentState& s, const LatentRows& rows, V later_sum, V sees) {
  const V zero = V::broadcast(0.0f);
  const V before = V::load(rows.total_max), later = V::load(rows.max);
  const V highest = select_less(before, later, later, before);
  const V keep = math::exp_nonpositive(before - highest);
  const V take = math::exp_nonpositive(later - highest);
  select_less(zero, sees, highest, before).store(rows.total_max);
  const V sum = V::load(rows.total_sum);
  select_less(zero, sees, fma(later_sum, take, sum * keep), sum).store(rows.total_sum);
  for (size_t i = 0; i < size_t{s.latent} * kLatentLanes; i += kLatentLanes) {
    const V total = V::load(rows.total_weighted + i);
    select_less(zero, sees, fma(V::load(rows.weighted + i), take, total * keep), total)
        .store(rows.total_weighted + i);
  }
}

// Hands over the split that holds `position` for the rows that see it, and begins their next one.
template <class V>
void finish_latent_split(const AttentionArgs& a, const LatentState& s, uint32_t tile, uint32_t position) {
  const uint32_t split = position / kAttnSplit;
  const LatentTile& t = s.tile[tile];
  const LatentRows& rows = s.rows[tile];
  alignas(64) float sees[kLatentLanes], sums[kLatentLanes];
  for (uint32_t lane = 0; lane < kLatentLanes; ++lane)
    sees[lane] =
        rows.first[lane] < (split + 1) * kAttnSplit && rows.end[lane] > split * kAttnSplit ? 1.0f : 0.0f;
  const V sum = tree_sum_of_lanes<V>(rows.sums);
  if (a.partials == nullptr) {
    merge_latents(s, rows, sum, V::load(sees));
  } else {
    sum.store(sums);
    for (uint32_t lane = 0; lane < t.rows; ++lane) {
      if (sees[lane] == 0.0f) continue;
      float* out =
          a.partials[t.begin + lane] + size_t{split - a.split_begin} * attention_partial_floats(s.latent);
      out[0] = rows.max[lane];
      out[1] = sums[lane];
      take_lane(rows.weighted, lane, s.latent, out + kAttnPartialHead);
    }
  }
  begin_latent_split<V>(s, tile);
}

// Rows [begin, end) of a chunk as floats.
template <class V, class Element>
void widen_rows(const AttentionArgs& a, const LatentState& s, const LatentWalk& w, uint32_t position,
                uint32_t begin, uint32_t end) {
  for (uint32_t t = begin; t < end; ++t) {
    const uint32_t p = position + t;
    const Element* row = latent_row_at<Element>(a, w, p);
    float* out = s.chunk + size_t{t} * s.width;
    if constexpr (sizeof(Element) == 1) {
      const BlockId block = w.blocks[p / a.kv.block_size * a.block_stride];
      const V latent = V::broadcast(*latent_scale(a.kv, block, p % a.kv.block_size));
      const V rotated = V::broadcast(*rotated_scale(a.kv, block, p % a.kv.block_size));
      for (uint32_t d = 0; d < s.width; d += 16)
        (widen<V>(row + d) * (d < s.latent ? latent : rotated)).store(out + d);
    } else {
      for (uint32_t d = 0; d < s.width; d += 16) widen<V>(row + d).store(out + d);
    }
  }
}

template <class V, class Element>
void take_latent_walk(const AttentionArgs& a, const LatentState& s, const LatentWalk& w) {
  if (w.from >= w.to) return;
  const uint32_t first = s.rows[w.tile_begin].first[0];
  const Element* next[kAttnChunk];
  for (uint32_t position = w.from; position < w.to; position += kAttnChunk) {
    const uint32_t after = position + kAttnChunk;
    const uint32_t begin = first <= position ? 0 : smaller(first - position, kAttnChunk);
    widen_rows<V, Element>(a, s, w, position, begin, smaller(w.to - position, kAttnChunk));
    const bool more = after < w.to;
    for (uint32_t t = 0; more && t < kAttnChunk; ++t) next[t] = latent_row_at<Element>(a, w, after + t);
    for (uint32_t i = 0; i < w.tiles; ++i)
      attend_latents<V, Element>(a, s, s.rows[w.tile_begin + i], position, more && i == 0 ? next : nullptr);
    if (after % kAttnSplit != 0 && !(w.last && after >= w.to)) continue;
    for (uint32_t i = 0; i < w.tiles; ++i) finish_latent_split<V>(a, s, w.tile_begin + i, position);
  }
}

// All chunks of a call: those that its sequences share, then each one's own.
template <class V, class Element>
void take_latent_walks(const AttentionArgs& a, const LatentState& s) {
  const uint32_t begin = a.split_begin * kAttnSplit;
  const uint32_t end = a.split_end > UINT32_MAX / kAttnSplit ? UINT32_MAX : a.split_end * kAttnSplit;
  const uint32_t shared = smaller(a.shared, end);
  take_latent_walk<V, Element>(a, s, {a.sequences[0].blocks, 0, s.tiles, begin, shared, false});
  uint32_t tile = 0;
  for (uint32_t i = 0; i < a.sequence_count; ++i) {
    const AttentionSequence& sequence = a.sequences[i];
    const uint32_t tiles = (sequence.rows + kLatentLanes - 1) / kLatentLanes;
    const uint32_t first = s.rows[tile].first[0] / kAttnChunk * kAttnChunk;
    const uint32_t own_end = s.rows[tile + tiles - 1].end[kLatentLanes - 1];
    take_latent_walk<V, Element>(
        a, s,
        {sequence.blocks, tile, tiles, larger(first, larger(shared, begin)), smaller(own_end, end), true});
    tile += tiles;
  }
}

template <class V>
void write_latent_results(const AttentionArgs& a, const LatentState& s, uint32_t tile) {
  const LatentTile& t = s.tile[tile];
  float* weighted = s.rows[tile].total_weighted;
  const V divisor = V::load(s.rows[tile].total_sum);
  for (size_t i = 0; i < size_t{s.latent} * kLatentLanes; i += kLatentLanes)
    (V::load(weighted + i) / divisor).store(weighted + i);
  for (uint32_t lane = 0; lane < t.rows; ++lane) take_lane(weighted, lane, s.latent, a.out[t.begin + lane]);
}

template <class V>
void latent_attention(const AttentionArgs& a) {
  DCHECK(a.rows >= 1 && a.rows <= kLatentMaxRows && a.kv.block_size % kKvTile == 0 && a.kv.kv_heads == 1);
  DCHECK(a.kv.latent % 16 == 0 && a.kv.latent <= kMaxLatent && a.shared % kAttnChunk == 0);
  DCHECK(a.kv.head_dim % 16 == 0 && a.kv.head_dim - a.kv.latent <= kMaxRotatedKey && a.sinks == nullptr);
  const LatentState s = carve_latent_state(a);
  DCHECK(s.tiles <= kLatentMaxTiles);
  begin_latent_call<V>(a, s);
  if (a.kv.type == KvType::kInt8)
    take_latent_walks<V, int8_t>(a, s);
  else
    take_latent_walks<V, uint16_t>(a, s);
  if (a.partials != nullptr) return;
  for (uint32_t i = 0; i < s.tiles; ++i) write_latent_results<V>(a, s, i);
}

}  // namespace kvasir::vec
