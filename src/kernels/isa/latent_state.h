#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/generic/kv_address.h"
#include "kernels/inline.h"
#include "kernels/table.h"

// What a call of latent attention keeps in its scratch memory. Rows lie in the lanes of tiles: up to sixteen
// rows of one sequence a tile, value after value, so that a latent's value is multiplied with all of them at
// once and no reduction of a row runs along lanes.
namespace kvasir::vec {

inline constexpr uint32_t kLatentMaxTiles = kLatentMaxRows / kLatentLanes;

// Rows [begin, begin + rows) of a call; what lanes beyond them hold is the last row's.
struct LatentTile {
  uint32_t begin = 0;
  uint32_t rows = 0;
};

// Some tiles over positions [from, to) of one block table. `from` is a multiple of a chunk; `last` says that
// these rows see no more in this call.
struct LatentWalk {
  const BlockId* blocks = nullptr;
  uint32_t tile_begin = 0;
  uint32_t tiles = 0;
  uint32_t from = 0;
  uint32_t to = 0;
  bool last = true;
};

// One tile's running softmax: of the current split, and of the splits before. [..][16 lanes] each.
struct LatentRows {
  float* q;         // [width] times the scale, for int8 partly rotated
  float* max;       //
  float* sums;      // [16]
  float* weighted;  // [latent]
  float* total_max;
  float* total_sum;
  float* total_weighted;  // [latent]
  uint32_t* first;        // first visible position of each lane
  uint32_t* end;          // one past the last
};

struct LatentState {
  uint32_t latent = 0;
  uint32_t width = 0;  // latent and rotated key
  uint32_t tiles = 0;
  LatentTile tile[kLatentMaxTiles];
  LatentRows rows[kLatentMaxTiles];
  float* chunk = nullptr;   // [kAttnChunk][width] the chunk's rows as floats
  float* scores = nullptr;  // [kAttnChunk][16]
  float* seen = nullptr;    // [kAttnChunk][16] 1 where a lane sees the position, 0 elsewhere
};

inline constexpr size_t kLatentStateBytes =
    sizeof(float) * (kLatentMaxTiles * kLatentLanes * (3 * kMaxLatent + kMaxRotatedKey + 16 + 5) +
                     kAttnChunk * (kMaxLatent + kMaxRotatedKey + 2 * kLatentLanes));
static_assert(kLatentStateBytes <= kAttnScratchBytes);

// Deals the rows of a call out to tiles and lays the arrays out in the caller's scratch.
static inline LatentState carve_latent_state(const AttentionArgs& a) {
  auto* next = reinterpret_cast<float*>(a.scratch);
  const auto take = [&next](size_t floats) {
    float* p = next;
    next += floats;
    return p;
  };
  LatentState s;
  s.latent = a.kv.latent;
  s.width = a.kv.head_dim;
  s.chunk = take(size_t{kAttnChunk} * s.width);
  s.scores = take(size_t{kAttnChunk} * kLatentLanes);
  s.seen = take(size_t{kAttnChunk} * kLatentLanes);
  uint32_t row = 0;
  for (uint32_t i = 0; i < a.sequence_count; ++i) {
    const uint32_t stop = row + a.sequences[i].rows;
    for (; row < stop; row += s.tile[s.tiles++].rows) {
      const uint32_t left = stop - row;
      s.tile[s.tiles] = {row, left < kLatentLanes ? left : kLatentLanes};
      s.rows[s.tiles] = {.q = take(size_t{s.width} * kLatentLanes),
                         .max = take(kLatentLanes),
                         .sums = take(16 * kLatentLanes),
                         .weighted = take(size_t{s.latent} * kLatentLanes),
                         .total_max = take(kLatentLanes),
                         .total_sum = take(kLatentLanes),
                         .total_weighted = take(size_t{s.latent} * kLatentLanes),
                         .first = reinterpret_cast<uint32_t*>(take(kLatentLanes)),
                         .end = reinterpret_cast<uint32_t*>(take(kLatentLanes))};
    }
  }
  return s;
}

// The row at `position` of a walk; that of the walk's last position where it goes beyond.
template <class Element>
static inline const Element* latent_row_at(const AttentionArgs& a, const LatentWalk& w, uint32_t position) {
  const uint32_t p = position < w.to ? position : w.to - 1;
  return latent_row<Element>(a.kv, w.blocks[p / a.kv.block_size * a.block_stride], p % a.kv.block_size);
}

}  // namespace kvasir::vec
