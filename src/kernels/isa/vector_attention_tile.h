#pragma once

#include <cstdint>

#include "base/check.h"
#include "kernels/generic/kv_address.h"
#include "kernels/generic/math.h"
#include "kernels/isa/attention_state.h"
#include "kernels/table.h"

// One chunk of attention for a tile of rows, over V, sixteen floats of an instruction set
// (isa/<isa>/lanes.h). Equal to generic/attention.cc to the bit: lanes run along positions in the scores and
// along head dimensions in the weighted sum, so no reduction of a row depends on how rows are grouped. What
// grouping buys: K and V are read and widened once for up to V::kTileRows rows. Included only by
// isa/vector_attention.h.
namespace kvasir::vec {

template <class V>
KVASIR_INLINE V widen(const uint16_t* halves) {
  return V::load_half(halves);
}
template <class V>
KVASIR_INLINE V widen(const int8_t* bytes) {
  return V::load_int8(bytes);
}

// Vectors of sixteen elements in a cache line: one of them prefetches it.
template <class Element>
inline constexpr size_t kVectorsPerLine = 64 / (16 * sizeof(Element));

// scores[r][16 n + i] = q[r] . k[position 16 n + i] for N neighbouring K tiles. q is packed [head_dim][R];
// `ahead` are tiles to prefetch.
template <class V, class Element, int R, int N>
void score_tiles(const Element* const* k, const Element* const* ahead, const float* q, uint32_t head_dim,
                 float* scores) {
  V acc[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) acc[r][n] = V::broadcast(0.0f);
  }
  for (size_t d = 0; d < head_dim; ++d) {
    V keys[N];
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) {
      keys[n] = widen<V>(k[n] + d * kKvTile);
      prefetch(ahead[n] + d * kKvTile);
    }
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const V query = V::broadcast(q[d * R + r]);
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) acc[r][n] = fma(query, keys[n], acc[r][n]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) acc[r][n].store(scores + r * kAttnChunk + n * kKvTile);
  }
}

// weighted[r][0 .. 16 N) += p[r][t] * v[t][0 .. 16 N) for t in [begin, end) of a chunk, ascending. v[i] is
// the row of the chunk's position 16 i.
template <class V, class Element, int R, int N>
void weigh_columns(const Element* const* v, const ptrdiff_t* ahead, const float* p, uint32_t begin,
                   uint32_t end, size_t head_dim, float* weighted) {
  V acc[R][N];
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) acc[r][n] = V::load(weighted + size_t(r) * head_dim + n * 16);
  }
  for (size_t t = begin; t < end;) {
    const size_t tile = t / kKvTile;
    const size_t stop = end < (tile + 1) * kKvTile ? end : (tile + 1) * kKvTile;
    const Element* row = v[tile] + t % kKvTile * head_dim;
    const Element* row_ahead = row + ahead[tile];
    for (; t < stop; ++t, row += head_dim, row_ahead += head_dim) {
      V values[N];
#pragma GCC unroll 8
      for (int n = 0; n < N; ++n) {
        values[n] = widen<V>(row + n * 16);
        if (n % kVectorsPerLine<Element> == 0) prefetch(row_ahead + n * 16);
      }
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r) {
        const V weight = V::broadcast(p[r * kAttnChunk + t]);
#pragma GCC unroll 8
        for (int n = 0; n < N; ++n) acc[r][n] = fma(weight, values[n], acc[r][n]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 8
    for (int n = 0; n < N; ++n) acc[r][n].store(weighted + size_t(r) * head_dim + n * 16);
  }
}

// Scores of R rows against the K tiles [first, last) of a chunk.
template <class V, class Element, int R>
void score_chunk(const ChunkView<Element>& c, const float* q, uint32_t first, uint32_t last, float* scores) {
  constexpr uint32_t kTiles = V::kTileVectors;
  uint32_t i = first;
  for (; i + kTiles <= last; i += kTiles) {
    score_tiles<V, Element, R, kTiles>(c.k + i, c.k_ahead + i, q, c.head_dim, scores + i * kKvTile);
  }
  for (; i < last; ++i)
    score_tiles<V, Element, R, 1>(c.k + i, c.k_ahead + i, q, c.head_dim, scores + i * kKvTile);
}

// Adds the positions [begin, end) of a chunk to the weighted sums of R rows.
template <class V, class Element, int R>
void weigh_chunk(const ChunkView<Element>& c, const float* p, uint32_t begin, uint32_t end, float* weighted) {
  constexpr int kVectors = V::kTileVectors;
  constexpr uint32_t kStep = 16 * kVectors;
  if (begin >= end) return;
  uint32_t d = 0;
  const Element* v[kChunkTiles];
  for (; d < c.head_dim; d += d + kStep <= c.head_dim ? kStep : 16) {
    for (uint32_t i = begin / kKvTile; i <= (end - 1) / kKvTile; ++i) v[i] = c.v[i] + d;
    if (d + kStep <= c.head_dim) {
      weigh_columns<V, Element, R, kVectors>(v, c.v_ahead, p, begin, end, c.head_dim, weighted + d);
    } else {
      weigh_columns<V, Element, R, 1>(v, c.v_ahead, p, begin, end, c.head_dim, weighted + d);
    }
  }
}

// Sixteen scores of a row as they count: times the scale of K where that is int8, capped.
template <class V, class Element>
KVASIR_INLINE V final_scores(const AttentionArgs& a, const ChunkView<Element>& c, int tile,
                             const float* scores) {
  V v = V::load(scores + tile * 16);
  if constexpr (sizeof(Element) == 1) v = v * V::load(c.k_scale[tile]);
  return a.softcap != 0.0f ? math::softcap(v, V::broadcast(a.softcap)) : v;
}

// Sixteen weights of a row from its final scores, stored for the weighted sum: times the scale of V where
// that is int8. Returned without it.
template <class V, class Element>
KVASIR_INLINE V store_weights(const ChunkView<Element>& c, int tile, V score, V row_max, float* scores) {
  const V p = math::exp_nonpositive(score - row_max);
  if constexpr (sizeof(Element) == 1)
    (p * V::load(c.v_scale[tile])).store(scores + tile * 16);
  else
    p.store(scores + tile * 16);
  return p;
}

// Moves a row's running maximum up to that of a chunk, and rescales what it has summed; `sums` are its
// partial sums.
template <class V>
KVASIR_INLINE void raise_max(float chunk_max, uint32_t head_dim, RowState row, V& sums) {
  if (!(chunk_max > *row.max)) return;
  const V factor = math::exp_nonpositive(V::broadcast(*row.max - chunk_max));
  sums = sums * factor;
  for (uint32_t d = 0; d < head_dim; d += 16) (V::load(row.weighted + d) * factor).store(row.weighted + d);
  *row.max = chunk_max;
}

// Scores to weights: moves the row's running maximum, rescales what it has summed, and replaces the scores of
// the chunk's positions [begin, end) by exp(score - max), times the scale of V where that is int8. What
// stands at the other positions of their tiles means nothing.
template <class V, class Element>
void soften_row(const AttentionArgs& a, const ChunkView<Element>& c, int begin, int end, float* scores,
                RowState row) {
  const V none = V::broadcast(-math::kInfinity);
  const int first = begin / 16;
  const int last = (end + 15) / 16;
  V visible[kChunkTiles];
  V top = none;
  for (int i = first; i < last; ++i) {
    const V v = final_scores<V>(a, c, i, scores);
    visible[i] = select(V::Mask::between(begin - i * 16, end - i * 16), v, none);
    top = max(visible[i], top);
  }
  V sums = V::load(row.sums);
  raise_max(reduce_max(top), a.kv.head_dim, row, sums);
  const V row_max = V::broadcast(*row.max);
  for (int i = first; i < last; ++i) sums = sums + store_weights(c, i, visible[i], row_max, scores);
  sums.store(row.sums);
}

// soften_row of a chunk all of which the row sees.
template <class V, class Element>
KVASIR_INLINE void soften_whole_row(const AttentionArgs& a, const ChunkView<Element>& c, float* scores,
                                    RowState row) {
  constexpr int kTiles = kChunkTiles;
  V visible[kTiles];
  V top = V::broadcast(-math::kInfinity);
#pragma GCC unroll 8
  for (int i = 0; i < kTiles; ++i) {
    visible[i] = final_scores<V>(a, c, i, scores);
    top = max(visible[i], top);
  }
  V sums = V::load(row.sums);
  raise_max(reduce_max(top), a.kv.head_dim, row, sums);
  const V row_max = V::broadcast(*row.max);
#pragma GCC unroll 8
  for (int i = 0; i < kTiles; ++i) sums = sums + store_weights(c, i, visible[i], row_max, scores);
  sums.store(row.sums);
}

// A chunk that every row of a tile sees whole.
template <class V, class Element, int R>
void attend_whole_chunk(const AttentionArgs& a, const ChunkView<Element>& c, const RowTile& tile,
                        AttentionState& state) {
  score_chunk<V, Element, R>(c, state.packed_q(tile), 0, kChunkTiles, state.scores);
  for (int r = 0; r < R; ++r)
    soften_whole_row<V>(a, c, state.scores + r * kAttnChunk, state.row(tile.begin + r));
  weigh_chunk<V, Element, R>(c, state.scores, 0, kAttnChunk, state.row(tile.begin).weighted);
}

// One chunk for the R rows of a tile. Rows share the positions that all of them see; what lies before or
// after, which only some see, is added row by row: a row never touches a position it does not see, whatever
// is stored there.
template <class V, class Element, int R>
void attend_chunk(const AttentionArgs& a, const ChunkView<Element>& c, const RowTile& tile,
                  AttentionState& state) {
  // Positions do not descend, so neither do the bounds.
  if (state.first[tile.begin + R - 1] <= c.position && state.end[tile.begin] >= c.position + kAttnChunk)
    return attend_whole_chunk<V, Element, R>(a, c, tile, state);
  uint32_t begin[R];
  uint32_t end[R];
  for (int r = 0; r < R; ++r) state.visible_in_chunk(tile.begin + r, c.position, begin[r], end[r]);
  float* scores = state.scores;
  score_chunk<V, Element, R>(c, state.packed_q(tile), begin[0] / kKvTile,
                             (end[R - 1] + kKvTile - 1) / kKvTile, scores);
  for (int r = 0; r < R; ++r) {
    if (begin[r] == end[r]) continue;
    soften_row<V>(a, c, static_cast<int>(begin[r]), static_cast<int>(end[r]), scores + r * kAttnChunk,
                  state.row(tile.begin + r));
  }
  const uint32_t common_begin = begin[R - 1];
  const uint32_t common_end = end[0] > common_begin ? end[0] : common_begin;
  for (int r = 0; r < R; ++r) {
    const uint32_t stop = end[r] < common_begin ? end[r] : common_begin;
    weigh_chunk<V, Element, 1>(c, scores + r * kAttnChunk, begin[r], stop,
                               state.row(tile.begin + r).weighted);
  }
  weigh_chunk<V, Element, R>(c, scores, common_begin, common_end, state.row(tile.begin).weighted);
  for (int r = 0; r < R; ++r) {
    const uint32_t start = begin[r] > common_end ? begin[r] : common_end;
    weigh_chunk<V, Element, 1>(c, scores + r * kAttnChunk, start, end[r], state.row(tile.begin + r).weighted);
  }
}

template <class V, class Element>
void attend_chunk(const AttentionArgs& a, const ChunkView<Element>& c, const RowTile& tile,
                  AttentionState& state) {
  static_assert(V::kTileRows == 6 || V::kTileRows == 7);
  switch (tile.rows) {
    case 1:
      return attend_chunk<V, Element, 1>(a, c, tile, state);
    case 2:
      return attend_chunk<V, Element, 2>(a, c, tile, state);
    case 3:
      return attend_chunk<V, Element, 3>(a, c, tile, state);
    case 4:
      return attend_chunk<V, Element, 4>(a, c, tile, state);
    case 5:
      return attend_chunk<V, Element, 5>(a, c, tile, state);
    case 6:
      return attend_chunk<V, Element, 6>(a, c, tile, state);
    default:
      if constexpr (V::kTileRows == 7) return attend_chunk<V, Element, 7>(a, c, tile, state);
  }
}

}  // namespace kvasir::vec
