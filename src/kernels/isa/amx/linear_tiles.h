#pragma once

#include "kernels/isa/avx512/linear_tile.h"
#include "kernels/isa/linear_functions.h"

// Sixteen rows at a time: the integer dots of a block of 16 rows x 16 outputs are one tile product, since a
// quad of an unpacked block is a row of its right operand. A sweep is that of avx512/linear_tile.h; while the
// dots of one block become sums, in registers, later blocks are multiplied. What bounds it, measured: for
// some 128 cycles after a tile instruction a Sapphire Rapids starts one 512-bit float operation a cycle, not
// two, and the sums of a block with minimums are 64 of them; its product alone takes 31. `Tiles` is what
// multiplies:
//
//   Tiles(width)       makes ready for products over `width` inputs, 32 or 16
//   multiply<Set>(a, stride, b, c)
//                      c[16][16] = 16 rows of `width` signed bytes, `stride` bytes apart, times width / 4
//                      quads of signed bytes; products of sets 0 and 1 may overlap
namespace kvasir::amx {
namespace {

using avx512::prefetch_part;
using avx512::UnpackedBlock;
using avx512::unroll;
using quant::Chunk;
using quant::kBlocksPerChunk;

inline constexpr uint32_t kTileRows = 16;
inline constexpr uint32_t kGroupPanels = 8;
inline constexpr uint32_t kMaxSweepRows = 512;
inline constexpr size_t kDots = size_t{kTileRows} * kPanelCols;

// One chunk of the activations of a tile's rows; rows that do not exist hold anything. `codes` lead to q or,
// where they can be read in place, to the rows themselves.
struct alignas(64) TileRows {
  const int8_t* codes;
  size_t stride;  // bytes from row to row
  alignas(64) int8_t q[kTileRows][size_t{kBlocksPerChunk} * kGroup];
  float d[kTileRows][kBlocksPerChunk];
  float ds[kTileRows][kBlocksPerChunk];
  float nsum[kTileRows][2 * kBlocksPerChunk];
};

struct TileScratch {
  UnpackedBlock blocks[kGroupPanels][kBlocksPerChunk];
  TileRows rows;
  alignas(64) int32_t dots[kBlocksPerChunk][2][kDots];               // [block][half of the block]
  alignas(64) float acc[kMaxSweepRows * kGroupPanels * kPanelCols];  // [panel][row][column]
};
static_assert(sizeof(TileScratch) <= kLinearScratchBytes);

// What remains of a format behind its unpacking, which takes the zero point off the codes: they are within a
// signed byte for every format.
template <class F>
using TileClassOf = avx512::TileClass<F::kGroups, false, F::kHasMin>;

// Blocks [first, first + count) of rows [row, row + rows). Sixteen rows stay where they are, unless they are
// so far apart that they fight for one set of the L1 cache.
template <class T>
[[gnu::noinline]] void take_rows(const QuantRows& x, uint32_t row, uint32_t rows, uint32_t first,
                                 uint32_t count, TileRows& out) {
  const size_t k_blocks = x.k / kGroup;
  const bool in_place = rows == kTileRows && x.k % 4096 != 0;
  out.codes = in_place ? x.q + (row * k_blocks + first) * kGroup : out.q[0];
  out.stride = in_place ? x.k : sizeof out.q[0];
  const auto one = static_cast<__mmask8>((1u << count) - 1);
  const auto two = static_cast<__mmask16>((1u << 2 * count) - 1);
  for (uint32_t r = 0; r < rows; ++r) {
    const size_t group = (row + r) * k_blocks + first;
    const int8_t* q = x.q + group * kGroup;
    for (uint32_t b = 0; b < count && !in_place; ++b)
      _mm256_store_si256(reinterpret_cast<__m256i*>(out.q[r] + b * kGroup),
                         _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + b * kGroup)));
    _mm256_store_ps(out.d[r], _mm256_maskz_loadu_ps(one, x.d + group));
    if constexpr (T::kHasMin && T::kGroups == 1)
      _mm256_store_ps(out.ds[r], _mm256_maskz_loadu_ps(one, x.ds + group));
    if constexpr (T::kHasMin && T::kGroups == 2)
      _mm512_store_ps(out.nsum[r], _mm512_cvtepi32_ps(_mm512_maskz_loadu_epi32(two, x.nsum16 + 2 * group)));
  }
}

// One block of every row, with one scale per 32 inputs, as scalar::linear defines it.
template <class T, int Rows>
requires(T::kGroups == 1)
    [[gnu::always_inline]] inline void add_block(const UnpackedBlock& w, const TileRows& x, uint32_t b,
                                                 const int32_t (&dots)[2][kDots], __m512 (&acc)[Rows]) {
  const __m512 wd = _mm512_load_ps(w.d[0]);
  const __m512 wm = T::kHasMin ? _mm512_load_ps(w.m[0]) : _mm512_setzero_ps();
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    const __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(dots[0] + kR * kPanelCols));
    acc[kR] = _mm512_fmadd_ps(dot, _mm512_mul_ps(wd, _mm512_set1_ps(x.d[kR][b])), acc[kR]);
    if constexpr (T::kHasMin) acc[kR] = _mm512_fmadd_ps(wm, _mm512_set1_ps(x.ds[kR][b]), acc[kR]);
  });
}

// With a scale per 16 inputs; the halves are joined before the activation's scale.
template <class T, int Rows>
requires(T::kGroups == 2)
    [[gnu::always_inline]] inline void add_block(const UnpackedBlock& w, const TileRows& x, uint32_t b,
                                                 const int32_t (&dots)[2][kDots], __m512 (&acc)[Rows]) {
  const __m512 d[2] = {_mm512_load_ps(w.d[0]), _mm512_load_ps(w.d[1])};
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(_mm512_load_si512(dots[0] + kR * kPanelCols)), d[0]);
    t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(_mm512_load_si512(dots[1] + kR * kPanelCols)), d[1], t);
    if constexpr (T::kHasMin)
      unroll<2>([&](auto half) __attribute__((always_inline)) {
        constexpr int kH = decltype(half)::value;
        t = _mm512_fnmadd_ps(_mm512_set1_ps(x.nsum[kR][2 * b + kH]), _mm512_load_ps(w.m[kH]), t);
      });
    acc[kR] = _mm512_fmadd_ps(t, _mm512_set1_ps(x.d[kR][b]), acc[kR]);
  });
}

// The dots of block `b` of sixteen rows.
template <class T, class Tiles>
[[gnu::always_inline]] inline void multiply_block(const Tiles& tiles, const UnpackedBlock* w, uint32_t b,
                                                  TileScratch& s) {
  const int8_t* q = s.rows.codes + b * kGroup;
  const size_t stride = s.rows.stride;
  tiles.template multiply<0>(q, stride, w[b].codes, s.dots[b][0]);
  if constexpr (T::kGroups == 2)
    tiles.template multiply<1>(q + kGroup / 2, stride, w[b].codes + quant::kBlockCodes / 2, s.dots[b][1]);
}

// How many blocks are multiplied before the first becomes sums; two to eight were alike in time.
inline constexpr uint32_t kAhead = 3;

// `Rows` rows over `count` blocks of one panel; `fresh`: the sums start at zero.
template <class T, int Rows, class Tiles>
[[gnu::noinline]] void tile(const Tiles& tiles, const UnpackedBlock* w, TileScratch& s, uint32_t count,
                            bool fresh, float* sums) {
  __m512 acc[Rows];
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    acc[kR] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(sums + kR * kPanelCols);
  });
  for (uint32_t b = 0; b < count && b < kAhead; ++b) multiply_block<T>(tiles, w, b, s);
  for (uint32_t b = 0; b < count; ++b) {
    if (b + kAhead < count) multiply_block<T>(tiles, w, b + kAhead, s);
    add_block<T, Rows>(w[b], s.rows, b, s.dots[b], acc);
  }
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    _mm512_store_ps(sums + kR * kPanelCols, acc[kR]);
  });
}

template <class T, class Tiles>
[[gnu::always_inline]] inline void tile_of(uint32_t rows, const Tiles& tiles, const UnpackedBlock* w,
                                           TileScratch& s, uint32_t count, bool fresh, float* sums) {
  switch ((rows + 3) / 4) {
    case 1:
      return tile<T, 4>(tiles, w, s, count, fresh, sums);
    case 2:
      return tile<T, 8>(tiles, w, s, count, fresh, sums);
    case 3:
      return tile<T, 12>(tiles, w, s, count, fresh, sums);
    default:
      return tile<T, 16>(tiles, w, s, count, fresh, sums);
  }
}

// Rows [row_begin, row_end) of panels [p, p + panels), at most kGroupPanels and kMaxSweepRows of them.
template <class F, class Tiles>
void sweep(const Tiles& tiles, const LinearArgs& a, uint32_t p, uint32_t panels, uint32_t row_begin,
           uint32_t row_end) {
  using T = TileClassOf<F>;
  auto& s = *reinterpret_cast<TileScratch*>(a.scratch);
  const size_t panel_bytes = a.w->panel_bytes;
  const uint8_t* first_panel = reinterpret_cast<const uint8_t*>(a.w->data) + p * panel_bytes;
  const uint32_t k_blocks = a.w->k / kGroup;
  const uint32_t rows = row_end - row_begin;
  const uint32_t row_tiles = (rows + kTileRows - 1) / kTileRows;
  const auto sums = [&](uint32_t panel, uint32_t row) {
    return s.acc + (size_t{panel} * kMaxSweepRows + row) * kPanelCols;
  };
  for (uint32_t first = 0; first < k_blocks; first += kBlocksPerChunk) {
    const Chunk<F> chunk = quant::chunk_at<F>(first_panel, k_blocks, first);
    for (uint32_t i = 0; i < panels; ++i)
      avx512::unpack_chunk<F, F::kZero>(
          {chunk.header + i * panel_bytes, chunk.pairs + i * panel_bytes, chunk.blocks}, 1, s.blocks[i]);
    const bool last = first + kBlocksPerChunk >= k_blocks;
    const uint8_t* next = last ? first_panel + panels * panel_bytes : chunk.pairs + F::kChunkBytes;
    for (uint32_t t = 0; t < row_tiles; ++t) {
      const uint32_t begin = t * kTileRows;
      const uint32_t count = rows - begin < kTileRows ? rows - begin : kTileRows;
      prefetch_part<F>(next, panel_bytes, panels, t, row_tiles);
      take_rows<T>(*a.x, row_begin + begin, count, first, chunk.blocks, s.rows);
      for (uint32_t i = 0; i < panels; ++i)
        tile_of<T>(count, tiles, s.blocks[i], s, chunk.blocks, first == 0, sums(i, begin));
      if (!last) continue;
      for (uint32_t r = begin; r < begin + count; ++r)
        for (uint32_t i = 0; i < panels; ++i)
          avx512::finish(a, p + i, row_begin + r, _mm512_load_ps(sums(i, r)));
    }
  }
}

template <class F, class Tiles>
void sweeps(const LinearArgs& a) {
  const Tiles tiles(kGroup / F::kGroups);
  const uint32_t passes = (a.rows + kMaxSweepRows - 1) / kMaxSweepRows;
  for (uint32_t i = 0; i < passes; ++i) {
    const uint32_t row = i * kMaxSweepRows;
    const uint32_t end = a.rows - row < kMaxSweepRows ? a.rows : row + kMaxSweepRows;
    for (uint32_t p = a.panel_begin; p < a.panel_end; p += kGroupPanels)
      sweep<F>(tiles, a, p, a.panel_end - p < kGroupPanels ? a.panel_end - p : kGroupPanels, row, end);
  }
}

// From this many rows on tiles beat vectors, measured on a Sapphire Rapids. Never a matter of bits.
template <class F>
constexpr uint32_t kTilesFrom = F::kGroups == 2 || F::kBits == 8 ? 64 : 24;

template <class Tiles>
void any_linear(const LinearArgs& args) {
  const bool quantised = quant::with_format(args.w->type, [&]<class F>(F) {
    if (args.rows >= kTilesFrom<F>)
      sweeps<F, Tiles>(args);
    else
      avx512::linear(args);
  });
  if (!quantised) avx512::linear(args);
}

}  // namespace
}  // namespace kvasir::amx
