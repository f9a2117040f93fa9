#pragma once

#include <cstdint>

#include "base/check.h"
#include "kernels/generic/kv_address.h"
#include "kernels/generic/math.h"
#include "kernels/inline.h"
#include "kernels/isa/attention_state.h"
#include "kernels/isa/vector_attention_tile.h"
#include "kernels/isa/vector_rotate.h"
#include "kernels/table.h"

// A call of attention over V, sixteen floats of an instruction set (isa/<isa>/lanes.h): first all rows
// through the chunks that their sequences share, then each sequence's rows through its own. A row's running
// softmax lies in the scratch between chunks, so that its operations are those of generic/attention.cc
// whatever order the chunks of other rows come in. V's namespace holds its reductions tree_sum, reduce_max
// and first_lane. Included only by isa/<isa>/attention.cc.
namespace kvasir::vec {

template <class V>
void clear(float* p, size_t n) {
  for (size_t i = 0; i < n; i += 16) V::broadcast(0.0f).store(p + i);
}

template <class V>
void begin_split(uint32_t r, AttentionState& s) {
  const RowState row = s.row(r);
  *row.max = -math::kInfinity;
  clear<V>(row.sums, 16);
  clear<V>(row.weighted, s.head_dim);
}

// Visible ranges, empty totals and splits.
template <class V>
void begin_call(const AttentionArgs& a, AttentionState& s) {
  for (uint32_t r = 0; r < a.rows; ++r) {
    for (uint32_t d = 0; d < s.head_dim; d += 16) prefetch(a.q[r] + d);
  }
  for (uint32_t r = 0; r < a.rows; ++r) {
    const auto position = static_cast<uint32_t>(a.positions[r]);
    s.first[r] = first_visible(position, a.window);
    s.end[r] = position + 1;
    DCHECK(a.shared == 0 || (s.first[r] == 0 && s.end[r] > a.shared));
    s.total_max[r] = -math::kInfinity;
    s.total_sum[r] = 0.0f;
    begin_split<V>(r, s);
  }
  clear<V>(s.total_weighted, size_t{a.rows} * s.head_dim);
}

// Joins a partial result of one row to those before it.
template <class V>
KVASIR_INLINE void merge(float later_max, V later_sum, const float* later_weighted, uint32_t head_dim,
                         float* max, float* sum, float* weighted) {
  const float highest = *max < later_max ? later_max : *max;
  const V keep = math::exp_nonpositive(V::broadcast(*max - highest));
  const V take = math::exp_nonpositive(V::broadcast(later_max - highest));
  *max = highest;
  *sum = first_lane(fma(later_sum, take, V::broadcast(*sum) * keep));
  for (uint32_t d = 0; d < head_dim; d += 16) {
    fma(V::load(later_weighted + d), take, V::load(weighted + d) * keep).store(weighted + d);
  }
}

// A sink is a split whose only position has this score and a V of zeros.
template <class V>
void merge_sink(float sink, uint32_t head_dim, float* max, float* sum, float* weighted) {
  alignas(64) static constexpr float kNothing[kMaxLatent] = {};
  if (sink != -math::kInfinity) merge(sink, V::broadcast(1.0f), kNothing, head_dim, max, sum, weighted);
}

template <class V>
void write_result(float sum, const float* weighted, uint32_t head_dim, float* out) {
  const V divisor = V::broadcast(sum);
  for (uint32_t d = 0; d < head_dim; d += 16) (V::load(weighted + d) / divisor).store(out + d);
}

// Hands over the split that holds `position` for the rows that see it, and begins their next one.
template <class V>
void finish_split(const AttentionArgs& a, const Walk& w, uint32_t position, AttentionState& s) {
  const uint32_t split = position / kAttnSplit;
  for (uint32_t r = w.row_begin; r < w.row_begin + w.rows; ++r) {
    if (s.first[r] >= (split + 1) * kAttnSplit || s.end[r] <= split * kAttnSplit) continue;
    const RowState row = s.row(r);
    const float sum = tree_sum(V::load(row.sums));
    if (a.partials != nullptr) {
      float* out = a.partials[r] + size_t{split - a.split_begin} * attention_partial_floats(s.head_dim);
      out[0] = *row.max;
      out[1] = sum;
      for (uint32_t d = 0; d < s.head_dim; d += 16) {
        V::load(row.weighted + d).store(out + kAttnPartialHead + d);
      }
    } else {
      merge(*row.max, V::broadcast(sum), row.weighted, s.head_dim, s.total_max + r, s.total_sum + r,
            s.total_weighted + size_t{r} * s.head_dim);
    }
    begin_split<V>(r, s);
  }
}

// The queries of a tile, times the scale and, for int8, rotated: [head_dim][rows of the tile].
template <class V, class Element>
void pack_queries(const AttentionArgs& a, const RowTile& tile, const AttentionState& s) {
  alignas(64) float query[kAttnMaxHeadDim];
  const uint32_t block = rotated_block(s.head_dim);
  for (uint32_t r = 0; r < tile.rows; ++r) {
    const float* q = a.q[tile.begin + r];
    float* packed = s.packed_q(tile) + r;
    if constexpr (sizeof(Element) == 1) {
      rotate_head<V>(q, s.head_dim, a.scale, block == 0 ? 1.0f : 1.0f / static_cast<float>(block), query);
      for (uint32_t d = 0; d < s.head_dim; ++d) packed[size_t{d} * tile.rows] = query[d];
    } else {
      for (uint32_t d = 0; d < s.head_dim; ++d) packed[size_t{d} * tile.rows] = q[d] * a.scale;
    }
  }
}

// How many tiles rows are cut into. Seven rows are one tile where registers allow: one long decode of such a
// group takes 0.98 of the time of 4 + 3 rows, over int8 0.95. Of more rows six make the best tiles, and eight
// are 4 + 4: 8 rows x 2 vectors take 1.07 of their time (Zen 4, bench/attention_bench.cc, decode4096).
template <class V>
uint32_t tile_count(uint32_t rows) {
  return rows <= V::kTileRows ? 1 : (rows + 5) / 6;
}

template <class V, class Element>
void take_walk(const AttentionArgs& a, const Walk& w, AttentionState& s) {
  if (w.from >= w.to) return;
  const uint32_t tiles = tile_count<V>(w.rows);
  for (uint32_t i = 0; i < tiles; ++i) pack_queries<V, Element>(a, row_tile(w, tiles, i), s);
  const uint32_t first = s.first[w.row_begin];
  ChunkView<Element> views[2];  // this chunk's and the next one's, in turns
  set_chunk_view(a, w, w.from, first, views[0]);
  for (uint32_t position = w.from, turn = 0; position < w.to; position += kAttnChunk, turn ^= 1) {
    const uint32_t next = position + kAttnChunk;
    ChunkView<Element>& chunk = views[turn];
    set_chunk_view(a, w, next, first, views[turn ^ 1]);
    look_ahead(chunk, views[turn ^ 1]);
    for (uint32_t i = 0; i < tiles; ++i) {
      const RowTile tile = row_tile(w, tiles, i);
      const bool seen = s.first[tile.begin] < next && s.end[tile.begin + tile.rows - 1] > position;
      if (seen) attend_chunk<V, Element>(a, chunk, tile, s);
    }
    if (next % kAttnSplit == 0 || (w.last && next >= w.to)) finish_split<V>(a, w, position, s);
  }
}

KVASIR_INLINE uint32_t smaller(uint32_t a, uint32_t b) {
  return a < b ? a : b;
}
KVASIR_INLINE uint32_t larger(uint32_t a, uint32_t b) {
  return a < b ? b : a;
}

// All chunks of a call: those that its sequences share, then each one's own.
template <class V, class Element>
void take_walks(const AttentionArgs& a, AttentionState& s) {
  const uint32_t begin = a.split_begin * kAttnSplit;
  const uint32_t end = a.split_end > UINT32_MAX / kAttnSplit ? UINT32_MAX : a.split_end * kAttnSplit;
  const uint32_t shared = smaller(a.shared, end);
  take_walk<V, Element>(a, {a.sequences[0].blocks, 0, a.rows, begin, shared, false}, s);
  uint32_t row = 0;
  for (uint32_t i = 0; i < a.sequence_count; ++i) {
    const AttentionSequence& sequence = a.sequences[i];
    const uint32_t first = s.first[row] / kAttnChunk * kAttnChunk;
    const uint32_t own_end = s.end[row + sequence.rows - 1];
    const Walk own = {sequence.blocks,       row, sequence.rows, larger(first, larger(shared, begin)),
                      smaller(own_end, end), true};
    take_walk<V, Element>(a, own, s);
    row += sequence.rows;
  }
}

template <class V>
void attention(const AttentionArgs& a) {
  DCHECK(a.rows >= 1 && a.rows <= kAttnMaxRows && a.kv.block_size % kKvTile == 0);
  DCHECK(a.kv.head_dim % kKvTile == 0 && a.kv.head_dim <= kAttnMaxHeadDim && a.shared % kAttnChunk == 0);
  AttentionState s = carve_attention_state(a.scratch, a.kv.head_dim);
  begin_call<V>(a, s);
  if (a.kv.type == KvType::kInt8)
    take_walks<V, int8_t>(a, s);
  else
    take_walks<V, uint16_t>(a, s);
  if (a.partials != nullptr) return;
  for (uint32_t r = 0; r < a.rows; ++r) {
    float* weighted = s.total_weighted + size_t{r} * s.head_dim;
    if (a.sinks != nullptr) merge_sink<V>(a.sinks[r], s.head_dim, s.total_max + r, s.total_sum + r, weighted);
    write_result<V>(s.total_sum[r], weighted, s.head_dim, a.out[r]);
  }
}

template <class V>
void merge_attention(const float* partials, uint32_t count, uint32_t head_dim, float sink, float* out) {
  alignas(64) float weighted[kMaxLatent];
  static_assert(kMaxLatent >= kAttnMaxHeadDim);
  clear<V>(weighted, head_dim);
  float max = -math::kInfinity;
  float sum = 0.0f;
  for (uint32_t i = 0; i < count; ++i, partials += attention_partial_floats(head_dim)) {
    merge(partials[0], V::broadcast(partials[1]), partials + kAttnPartialHead, head_dim, &max, &sum,
          weighted);
  }
  merge_sink<V>(sink, head_dim, &max, &sum, weighted);
  write_result<V>(sum, weighted, head_dim, out);
}

}  // namespace kvasir::vec
