#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/generic/kv_address.h"
#include "kernels/inline.h"
#include "kernels/table.h"

// What a tiled attention call keeps in its scratch memory, and how it cuts rows and positions.
namespace kvasir::vec {

inline constexpr uint32_t kMaxTileRows = 7;  // rows that share one pass over K and V, at most
inline constexpr uint32_t kChunkTiles = kAttnChunk / kKvTile;

// Part of a call that goes through one block table: some of its rows over positions [from, to). `from` is a
// multiple of a chunk; `last` says that these rows see no more in this call.
struct Walk {
  const BlockId* blocks = nullptr;
  uint32_t row_begin = 0;
  uint32_t rows = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  bool last = true;
};

// Rows [begin, begin + rows) of a call.
struct RowTile {
  uint32_t begin = 0;
  uint32_t rows = 0;
};

// Where a chunk's sixteen-token tiles lie, of halves (uint16_t) or bytes (int8_t). Only tiles that hold a
// position of the walk's visible range are set.
template <class Element>
struct ChunkView {
  uint32_t position = 0;  // its first
  uint32_t head_dim = 0;
  const Element* k[kChunkTiles] = {};
  const Element* v[kChunkTiles] = {};
  // Of int8: the scales of a tile's sixteen tokens.
  const float* k_scale[kChunkTiles] = {};
  const float* v_scale[kChunkTiles] = {};
  // What to prefetch beside them: the next chunk's K tiles, and how far from this chunk's V rows the next
  // ones lie.
  const Element* k_ahead[kChunkTiles] = {};
  ptrdiff_t v_ahead[kChunkTiles] = {};
};

// The running softmax of one row over a split: largest score, sixteen partial sums, weighted V.
struct RowState {
  float* max;
  float* sums;
  float* weighted;
};

// Scratch of one call, [rows] each. `q` is times the scale and packed per tile: [head_dim][rows of the tile].
struct AttentionState {
  uint32_t head_dim = 0;
  float* q = nullptr;
  float* scores = nullptr;          // [kMaxTileRows][kAttnChunk]
  float* max = nullptr;             // of the current split
  float* sums = nullptr;            // [16]
  float* weighted = nullptr;        // [head_dim]
  float* total_max = nullptr;       // of the splits before
  float* total_sum = nullptr;       //
  float* total_weighted = nullptr;  // [head_dim]
  uint32_t* first = nullptr;        // first visible position
  uint32_t* end = nullptr;          // one past the last

  KVASIR_INLINE RowState row(uint32_t r) const {
    return {max + r, sums + size_t{r} * 16, weighted + size_t{r} * head_dim};
  }
  KVASIR_INLINE float* packed_q(const RowTile& tile) const { return q + size_t{tile.begin} * head_dim; }
  // What a row sees of the chunk at `position`, as offsets into the chunk; an empty range lies at the side
  // where the row's range is.
  KVASIR_INLINE void visible_in_chunk(uint32_t r, uint32_t position, uint32_t& from, uint32_t& to) const {
    from = first[r] <= position ? 0 : first[r] - position;
    to = end[r] <= position ? 0 : end[r] - position;
    if (from > kAttnChunk) from = kAttnChunk;
    if (to > kAttnChunk) to = kAttnChunk;
  }
};

inline constexpr size_t kAttentionStateBytes =
    sizeof(float) * (kAttnMaxRows * (3 * kAttnMaxHeadDim + 16 + 5) + kMaxTileRows * kAttnChunk);
static_assert(kAttentionStateBytes <= kAttnScratchBytes);

// Lays the arrays out in the caller's scratch.
static inline AttentionState carve_attention_state(std::byte* scratch, uint32_t head_dim) {
  auto* next = reinterpret_cast<float*>(scratch);
  const auto take = [&next](size_t floats) {
    float* p = next;
    next += floats;
    return p;
  };
  AttentionState s;
  s.head_dim = head_dim;
  s.q = take(size_t{kAttnMaxRows} * head_dim);
  s.weighted = take(size_t{kAttnMaxRows} * head_dim);
  s.total_weighted = take(size_t{kAttnMaxRows} * head_dim);
  s.scores = take(size_t{kMaxTileRows} * kAttnChunk);
  s.sums = take(size_t{kAttnMaxRows} * 16);
  s.max = take(kAttnMaxRows);
  s.total_max = take(kAttnMaxRows);
  s.total_sum = take(kAttnMaxRows);
  s.first = reinterpret_cast<uint32_t*>(take(kAttnMaxRows));
  s.end = reinterpret_cast<uint32_t*>(take(kAttnMaxRows));
  return s;
}

// Tile `index` of `count` tiles of a walk's rows whose sizes differ by at most one.
static inline RowTile row_tile(const Walk& w, uint32_t count, uint32_t index) {
  const uint32_t size = w.rows / count;
  const uint32_t larger = w.rows % count;
  return {w.row_begin + index * size + (index < larger ? index : larger), size + (index < larger ? 1 : 0)};
}

// Sets a view to the chunk at `position` of a walk whose rows see nothing before `first`.
template <class Element>
static inline void set_chunk_view(const AttentionArgs& a, const Walk& w, uint32_t position, uint32_t first,
                                  ChunkView<Element>& c) {
  c.position = position;
  c.head_dim = a.kv.head_dim;
  for (uint32_t i = 0; i < kChunkTiles; ++i) {
    const uint32_t tile = position + i * kKvTile;
    c.k[i] = nullptr;
    c.v[i] = nullptr;
    if (tile + kKvTile <= first || tile >= w.to) continue;
    const BlockId block = w.blocks[tile / a.kv.block_size * a.block_stride];
    const uint32_t slot = tile % a.kv.block_size;
    c.k[i] = k_tile<Element>(a.kv, a.kv_head, block, slot);
    c.v[i] = v_row<Element>(a.kv, a.kv_head, block, slot);
    if (sizeof(Element) > 1) continue;
    c.k_scale[i] = k_scale(a.kv, a.kv_head, block, slot);
    c.v_scale[i] = v_scale(a.kv, a.kv_head, block, slot);
  }
}

// Makes a chunk prefetch the next one.
template <class Element>
static inline void look_ahead(ChunkView<Element>& c, const ChunkView<Element>& next) {
  for (uint32_t i = 0; i < kChunkTiles; ++i) {
    c.k_ahead[i] = next.k[i] != nullptr ? next.k[i] : c.k[i];
    c.v_ahead[i] = c.v[i] != nullptr && next.v[i] != nullptr ? next.v[i] - c.v[i] : 0;
  }
}

// Into the second-level cache: the first has no room for a chunk more. Paged K and V are runs of 2-16 KiB,
// too short for the processor's own prefetchers: on Zen 4, decode at 4096 positions reads 20 GB/s with this,
// 9 without and 11 with prefetches into the first level (bench/attention_bench.cc).
KVASIR_INLINE void prefetch(const void* p) {
  __builtin_prefetch(p, 0, 2);
}

}  // namespace kvasir::vec
