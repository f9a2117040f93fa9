#pragma once

#include "kernels/isa/avx512/linear_tile.h"
#include "kernels/isa/linear_functions.h"

// Sixteen rows at a time: the integer dots of a block of 16 rows x 16 outputs are one tile product, since a
// quad of an unpacked block is a row of its right operand. Scales, minimums and sums are as in
// avx512/linear_tile.h, in memory between the blocks. `Tiles` is what multiplies:
//
//   Tiles(width)          makes ready for products over `width` inputs, 32 or 16
//   multiply<Set>(a, stride, b, c)
//                         c[16][16] = 16 rows of `width` signed bytes, `stride` bytes apart, times width / 4
//                         quads of unsigned bytes; products of sets 0 and 1 may overlap
namespace kvasir::amx {
namespace {

using avx512::UnpackedBlock;
using quant::Chunk;
using quant::kBlocksPerChunk;

inline constexpr uint32_t kTileRows = 16;
inline constexpr uint32_t kMaxRows = 2048;
inline constexpr size_t kDots = size_t{kTileRows} * kPanelCols;

struct TileScratch {
  UnpackedBlock blocks[kBlocksPerChunk];
  alignas(64) int32_t dots[2][kDots];
  alignas(64) float acc[kMaxRows * kPanelCols];  // [row][column]
};
static_assert(sizeof(TileScratch) <= kLinearScratchBytes);

// One block of a row with one scale per 32 inputs, as scalar::linear defines it.
template <class F>
requires(F::kGroups == 1) [[gnu::always_inline]] inline __m512
    accumulate(const UnpackedBlock& w, const QuantRows& x, size_t group, const int32_t* dots, __m512 acc) {
  const __m512i dot = _mm512_add_epi32(_mm512_load_si512(dots), avx512::dot_start<F>(x.nsum + group));
  const __m512 scale = _mm512_mul_ps(_mm512_load_ps(w.d[0]), _mm512_set1_ps(x.d[group]));
  acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, acc);
  if constexpr (F::kHasMin) acc = _mm512_fmadd_ps(_mm512_load_ps(w.m[0]), _mm512_set1_ps(x.ds[group]), acc);
  return acc;
}

// One block of a row with a scale per 16 inputs.
template <class F>
requires(F::kGroups == 2) [[gnu::always_inline]] inline __m512
    accumulate(const UnpackedBlock& w, const QuantRows& x, size_t group, const int32_t* dots, __m512 acc) {
  const int32_t* nsum = x.nsum16 + 2 * group;
  const __m512i dot0 = _mm512_add_epi32(_mm512_load_si512(dots), avx512::dot_start<F>(nsum));
  const __m512i dot1 = _mm512_add_epi32(_mm512_load_si512(dots + kDots), avx512::dot_start<F>(nsum + 1));
  __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(dot0), _mm512_load_ps(w.d[0]));
  t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot1), _mm512_load_ps(w.d[1]), t);
  if constexpr (F::kHasMin)
    for (int g = 0; g < 2; ++g)
      t = _mm512_fnmadd_ps(_mm512_load_ps(w.m[g]), _mm512_set1_ps(static_cast<float>(nsum[g])), t);
  return _mm512_fmadd_ps(t, _mm512_set1_ps(x.d[group]), acc);
}

// One block of sixteen rows, whose dots are ready, into their sums; `group` is the activation group of the
// first.
template <class F>
[[gnu::always_inline]] inline void add_block(const UnpackedBlock& w, const QuantRows& x, size_t group,
                                             size_t k_blocks, const int32_t* dots, float* acc) {
  for (uint32_t r = 0; r < kTileRows; ++r) {
    float* row = acc + r * kPanelCols;
    const int32_t* row_dots = dots + r * kPanelCols;
    _mm512_store_ps(row, accumulate<F>(w, x, group + r * k_blocks, row_dots, _mm512_load_ps(row)));
  }
}

// Sixteen rows over `count` unpacked blocks.
template <class F, class Tiles>
[[gnu::noinline]] void tile_rows(const Tiles& tiles, TileScratch& s, const QuantRows& x, size_t group,
                                 size_t k_blocks, uint32_t count, float* acc) {
  const size_t stride = k_blocks * kGroup;
  const int8_t* q = x.q + group * kGroup;
  if constexpr (F::kGroups == 2) {
    for (uint32_t b = 0; b < count; ++b) {
      const int8_t* a = q + b * kGroup;
      tiles.template multiply<0>(a, stride, s.blocks[b].codes, s.dots[0]);
      tiles.template multiply<1>(a + kGroup / 2, stride, s.blocks[b].codes + quant::kBlockCodes / 2,
                                 s.dots[1]);
      add_block<F>(s.blocks[b], x, group + b, k_blocks, s.dots[0], acc);
    }
  } else {
    for (uint32_t b = 0; b < count; b += 2) {
      const bool pair = b + 1 < count;
      tiles.template multiply<0>(q + b * kGroup, stride, s.blocks[b].codes, s.dots[0]);
      if (pair) tiles.template multiply<1>(q + (b + 1) * kGroup, stride, s.blocks[b + 1].codes, s.dots[1]);
      add_block<F>(s.blocks[b], x, group + b, k_blocks, s.dots[0], acc);
      if (pair) add_block<F>(s.blocks[b + 1], x, group + b + 1, k_blocks, s.dots[1], acc);
    }
  }
}

// Rows [row, row + rows) of panel `p`, a multiple of sixteen.
template <class F, class Tiles>
void rows_of_panel(const Tiles& tiles, const LinearArgs& a, uint32_t p, uint32_t row, uint32_t rows) {
  auto& s = *reinterpret_cast<TileScratch*>(a.scratch);
  const uint32_t k_blocks = a.w->k / kGroup;
  const auto* panel = reinterpret_cast<const uint8_t*>(a.w->data) + p * a.w->panel_bytes;
  for (uint32_t r = 0; r < rows; ++r) _mm512_store_ps(s.acc + size_t{r} * kPanelCols, _mm512_setzero_ps());
  for (uint32_t first = 0; first < k_blocks; first += kBlocksPerChunk) {
    const Chunk<F> chunk = quant::chunk_at<F>(panel, k_blocks, first);
    avx512::unpack_chunk<F>(chunk, 1, s.blocks);
    for (uint32_t r = 0; r < rows; r += kTileRows)
      tile_rows<F>(tiles, s, *a.x, size_t{row + r} * k_blocks + first, k_blocks, chunk.blocks,
                   s.acc + size_t{r} * kPanelCols);
  }
  for (uint32_t r = 0; r < rows; ++r)
    avx512::finish(a, p, row + r, _mm512_load_ps(s.acc + size_t{r} * kPanelCols));
}

// Whole sixteens of rows of quantised formats by tiles, everything else by the AVX-512 kernels.
template <class Tiles>
void any_linear(const LinearArgs& args) {
  const uint32_t tiled = args.rows / kTileRows * kTileRows;
  if (tiled == 0) return avx512::linear(args);
  const bool quantised = quant::with_format(args.w->type, [&]<class F>(F) {
    const Tiles tiles(kGroup / F::kGroups);
    for (uint32_t p = args.panel_begin; p < args.panel_end; ++p)
      for (uint32_t row = 0; row < tiled; row += kMaxRows)
        rows_of_panel<F>(tiles, args, p, row, tiled - row < kMaxRows ? tiled - row : kMaxRows);
  });
  if (!quantised) return avx512::linear(args);
  const QuantRows left = advance_groups(*args.x, size_t{tiled} * (args.w->k / kGroup));
  LinearArgs rest = args;
  rest.x = &left;
  rest.rows = args.rows - tiled;
  rest.out = args.out + tiled * args.ldo;
  avx512::linear(rest);
}

}  // namespace
}  // namespace kvasir::amx
