#pragma once

#include "kernels/isa/avx512/linear_rows.h"

// Many rows. One chunk of K of a group of panels is unpacked once into scratch; then all rows sweep over it
// in tiles of up to six rows by two panels. A tile's activations are copied side by side first, so that rows
// a power of two apart do not fight for cache sets. Accumulators rest in scratch between chunks, which
// changes no bit.
namespace kvasir::avx512 {
namespace {

inline constexpr uint32_t kTileRows = 6;
inline constexpr uint32_t kGroupPanels = 8;
inline constexpr uint32_t kMaxSweepRows = 256;

// One block of one panel, unpacked. What a tile needs to know of the format is here and in its TileClass.
struct alignas(64) UnpackedBlock {
  uint8_t codes[kBlockCodes];
  float d[2][kPanelCols];
  float m[2][kPanelCols];
};

// One chunk of the activations of a tile's rows. `start` is where integer dots begin: -(zero point) * (sum of
// q), per scale group of the format; `nsum` the plain negated sums, for formats with minimums per 16.
struct alignas(64) TileRows {
  int8_t q[kTileRows][kBlocksPerChunk * kGroup];
  float d[kTileRows][kBlocksPerChunk];
  float ds[kTileRows][kBlocksPerChunk];
  int32_t start[kTileRows][2 * kBlocksPerChunk];
  float nsum[kTileRows][2 * kBlocksPerChunk];
};

// Where a sweep's data lie in the caller's scratch.
struct SweepScratch {
  UnpackedBlock blocks[kGroupPanels * kBlocksPerChunk];  // [pair of panels][block][panel]
  TileRows rows;
  alignas(64) float acc[kMaxSweepRows * kGroupPanels * kPanelCols];  // [pair of panels][row][panel][column]
};
static_assert(sizeof(SweepScratch) <= kLinearScratchBytes);

// The parts of a format that outlive unpacking.
template <int Groups, bool HasZero, bool HasMin>
struct TileClass {
  static constexpr int kGroups = Groups;
  static constexpr bool kHasZero = HasZero;
  static constexpr bool kHasMin = HasMin;
};
template <class F>
using TileClassOf = TileClass<F::kGroups, F::kZero != 0, F::kHasMin>;

// Codes less `Zero`, modulo 256.
template <class F, int Zero>
[[gnu::always_inline]] inline void unpack_block(const Chunk<F>& chunk, const ChunkScales& chunk_scales,
                                                uint32_t b, UnpackedBlock& out) {
  __m512i w[kQuads];
  unpack_codes<F>(chunk.codes(b), w);
  unroll<8>([&](auto i) __attribute__((always_inline)) {
    constexpr int kI = decltype(i)::value;
    if constexpr (Zero != 0) w[kI] = _mm512_sub_epi8(w[kI], _mm512_set1_epi8(static_cast<char>(Zero)));
    _mm512_store_si512(out.codes + kI * kQuadBytes, w[kI]);
  });
  const BlockScales<F> s = load_scales<F>(chunk.scales(b), chunk_scales);
  unroll<F::kGroups>([&](auto g) __attribute__((always_inline)) {
    constexpr int kG = decltype(g)::value;
    _mm512_store_ps(out.d[kG], s.d[kG]);
    if constexpr (F::kHasMin) _mm512_store_ps(out.m[kG], s.m[kG]);
  });
}

// A chunk of one panel into every `step`-th place of `out`.
template <class F, int Zero = 0>
[[gnu::noinline]] void unpack_chunk(const Chunk<F>& chunk, uint32_t step, UnpackedBlock* out) {
  const ChunkScales chunk_scales = load_chunk_scales<F>(chunk.header);
  for (uint32_t b = 0; b < chunk.blocks; ++b) unpack_block<F, Zero>(chunk, chunk_scales, b, out[b * step]);
}

// Blocks [first, first + count) of rows [row, row + rows).
template <class F>
[[gnu::noinline]] void copy_rows(const QuantRows& x, uint32_t row, uint32_t rows, uint32_t first,
                                 uint32_t count, TileRows& out) {
  const size_t k_blocks = x.k / kGroup;
  const auto one = static_cast<__mmask8>((1u << count) - 1);
  const auto two = static_cast<__mmask16>((1u << 2 * count) - 1);
  for (uint32_t r = 0; r < rows; ++r) {
    const size_t group = (row + r) * k_blocks + first;
    const int8_t* q = x.q + group * kGroup;
    for (uint32_t b = 0; b < count; ++b)
      _mm256_store_si256(reinterpret_cast<__m256i*>(out.q[r] + b * kGroup),
                         _mm256_loadu_si256(reinterpret_cast<const __m256i*>(q + b * kGroup)));
    _mm256_store_ps(out.d[r], _mm256_maskz_loadu_ps(one, x.d + group));
    if constexpr (F::kHasMin && F::kGroups == 1)
      _mm256_store_ps(out.ds[r], _mm256_maskz_loadu_ps(one, x.ds + group));
    if constexpr (F::kZero != 0 || F::kGroups == 2) {
      const __m512i nsum = F::kGroups == 1
                               ? _mm512_castsi256_si512(_mm256_maskz_loadu_epi32(one, x.nsum + group))
                               : _mm512_maskz_loadu_epi32(two, x.nsum16 + 2 * group);
      _mm512_store_si512(out.start[r], _mm512_slli_epi32(nsum, F::kZeroShift));
      if constexpr (F::kHasMin) _mm512_store_ps(out.nsum[r], _mm512_cvtepi32_ps(nsum));
    }
  }
}

// dots[r][p] of quads [First, First + Count) of one block; `q` are the first row's 32 activations.
template <class T, int First, int Count, int Rows, int Panels>
[[gnu::always_inline]] inline void tile_dots(const UnpackedBlock* w, const int8_t* q, const int32_t* start,
                                             __m512i (&dots)[Rows][Panels]) {
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    const __m512i v =
        T::kHasZero ? _mm512_set1_epi32(start[kR * 2 * kBlocksPerChunk]) : _mm512_setzero_si512();
    unroll<Panels>([&](auto p) __attribute__((always_inline)) { dots[kR][decltype(p)::value] = v; });
  });
  unroll<Count>([&](auto i) __attribute__((always_inline)) {
    constexpr int kI = First + decltype(i)::value;
    __m512i codes[Panels];
    unroll<Panels>([&](auto p) __attribute__((always_inline)) {
      constexpr int kP = decltype(p)::value;
      codes[kP] = _mm512_load_si512(w[kP].codes + kI * kQuadBytes);
    });
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      constexpr int kR = decltype(r)::value;
      const __m512i a = broadcast_quad(q + kR * kBlocksPerChunk * kGroup + 4 * kI);
      unroll<Panels>([&](auto p) __attribute__((always_inline)) {
        constexpr int kP = decltype(p)::value;
        dots[kR][kP] = _mm512_dpbusd_epi32(dots[kR][kP], codes[kP], a);
      });
    });
  });
}

// Block `b` with one scale per 32 inputs.
template <class T, int Rows, int Panels>
requires(T::kGroups == 1)
    [[gnu::always_inline]] inline void tile_block(const UnpackedBlock* w, const TileRows& x, uint32_t b,
                                                  __m512 (&acc)[Rows][Panels]) {
  __m512i dots[Rows][Panels];
  tile_dots<T, 0, 8>(w, x.q[0] + b * kGroup, x.start[0] + b, dots);
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    const __m512 ad = _mm512_set1_ps(x.d[kR][b]);
    unroll<Panels>([&](auto p) __attribute__((always_inline)) {
      constexpr int kP = decltype(p)::value;
      const __m512 s = _mm512_mul_ps(ad, _mm512_load_ps(w[kP].d[0]));
      acc[kR][kP] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[kR][kP]), s, acc[kR][kP]);
      if constexpr (T::kHasMin)
        acc[kR][kP] = _mm512_fmadd_ps(_mm512_set1_ps(x.ds[kR][b]), _mm512_load_ps(w[kP].m[0]), acc[kR][kP]);
    });
  });
}

// Block `b` with a scale per 16 inputs; the halves are joined before the activation's scale.
template <class T, int Rows, int Panels>
requires(T::kGroups == 2)
    [[gnu::always_inline]] inline void tile_block(const UnpackedBlock* w, const TileRows& x, uint32_t b,
                                                  __m512 (&acc)[Rows][Panels]) {
  __m512 joined[Rows][Panels];
  unroll<2>([&](auto half) __attribute__((always_inline)) {
    constexpr int kH = decltype(half)::value;
    __m512i dots[Rows][Panels];
    tile_dots<T, 4 * kH, 4>(w, x.q[0] + b * kGroup, x.start[0] + 2 * b + kH, dots);
    unroll<Rows * Panels>([&](auto i) __attribute__((always_inline)) {
      constexpr int kR = decltype(i)::value / Panels;
      constexpr int kP = decltype(i)::value % Panels;
      const __m512 dot = _mm512_cvtepi32_ps(dots[kR][kP]);
      const __m512 d = _mm512_load_ps(w[kP].d[kH]);
      joined[kR][kP] = kH == 0 ? _mm512_mul_ps(dot, d) : _mm512_fmadd_ps(dot, d, joined[kR][kP]);
    });
  });
  unroll<Rows * Panels>([&](auto i) __attribute__((always_inline)) {
    constexpr int kR = decltype(i)::value / Panels;
    constexpr int kP = decltype(i)::value % Panels;
    __m512 t = joined[kR][kP];
    if constexpr (T::kHasMin) {
      t = _mm512_fnmadd_ps(_mm512_set1_ps(x.nsum[kR][2 * b]), _mm512_load_ps(w[kP].m[0]), t);
      t = _mm512_fnmadd_ps(_mm512_set1_ps(x.nsum[kR][2 * b + 1]), _mm512_load_ps(w[kP].m[1]), t);
    }
    acc[kR][kP] = _mm512_fmadd_ps(t, _mm512_set1_ps(x.d[kR][b]), acc[kR][kP]);
  });
}

// `Rows` rows over `count` blocks; `fresh`: the accumulators start at zero.
template <class T, int Rows, int Panels>
[[gnu::noinline]] void tile(const UnpackedBlock* w, const TileRows& x, uint32_t count, bool fresh,
                            float* sums) {
  __m512 acc[Rows][Panels];
  unroll<Rows * Panels>([&](auto i) __attribute__((always_inline)) {
    constexpr int kI = decltype(i)::value;
    acc[kI / Panels][kI % Panels] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(sums + kI * kPanelCols);
  });
  for (uint32_t b = 0; b < count; ++b) tile_block<T>(w + b * Panels, x, b, acc);
  unroll<Rows * Panels>([&](auto i) __attribute__((always_inline)) {
    constexpr int kI = decltype(i)::value;
    _mm512_store_ps(sums + kI * kPanelCols, acc[kI / Panels][kI % Panels]);
  });
}

template <class T, int Panels>
[[gnu::always_inline]] inline void tile_of(uint32_t rows, const UnpackedBlock* w, const TileRows& x,
                                           uint32_t count, bool fresh, float* sums) {
  switch (rows) {
    case 1:
      return tile<T, 1, Panels>(w, x, count, fresh, sums);
    case 2:
      return tile<T, 2, Panels>(w, x, count, fresh, sums);
    case 3:
      return tile<T, 3, Panels>(w, x, count, fresh, sums);
    case 4:
      return tile<T, 4, Panels>(w, x, count, fresh, sums);
    case 5:
      return tile<T, 5, Panels>(w, x, count, fresh, sums);
    default:
      return tile<T, 6, Panels>(w, x, count, fresh, sums);
  }
}

// Asks for part `part` of `parts` of the bytes that the next unpacking will read: those behind `next` of each
// panel.
template <class F>
[[gnu::always_inline]] inline void prefetch_part(const uint8_t* next, size_t panel_bytes, uint32_t panels,
                                                 uint32_t part, uint32_t parts) {
  constexpr uint32_t kLines = F::kChunkBytes / 64;
  const uint32_t begin = kLines * part / parts;
  const uint32_t end = kLines * (part + 1) / parts;
  for (uint32_t p = 0; p < panels; ++p)
    for (uint32_t line = begin; line < end; ++line)
      _mm_prefetch(reinterpret_cast<const char*>(next + p * panel_bytes + line * 64), _MM_HINT_T1);
}

// The sums of row `r` of a sweep of `rows` from `row_begin` on.
inline void finish_row(const LinearArgs& a, const SweepScratch& scratch, uint32_t p, uint32_t panels,
                       uint32_t rows, uint32_t row_begin, uint32_t r) {
  for (uint32_t i = 0; i < panels; ++i) {
    const bool alone = i + 1 == panels && panels % 2 == 1;
    const size_t in_pair = alone ? r : 2 * size_t{r} + i % 2;
    finish(a, p + i, row_begin + r,
           _mm512_load_ps(scratch.acc + (size_t{i / 2} * rows * 2 + in_pair) * kPanelCols));
  }
}

// Rows [row_begin, row_end) of panels [p, p + panels), at most kGroupPanels and kMaxSweepRows of them.
template <class F>
void sweep(const LinearArgs& a, uint32_t p, uint32_t panels, uint32_t row_begin, uint32_t row_end) {
  using T = TileClassOf<F>;
  auto& scratch = *reinterpret_cast<SweepScratch*>(a.scratch);
  const size_t panel_bytes = a.w->panel_bytes;
  const uint8_t* first_panel = reinterpret_cast<const uint8_t*>(a.w->data) + p * panel_bytes;
  const uint32_t k_blocks = a.w->k / kGroup;
  const uint32_t rows = row_end - row_begin;
  const uint32_t tiles = (rows + kTileRows - 1) / kTileRows;
  const uint32_t pairs = (panels + 1) / 2;
  for (uint32_t first = 0; first < k_blocks; first += kBlocksPerChunk) {
    const Chunk<F> chunk = chunk_at<F>(first_panel, k_blocks, first);
    for (uint32_t i = 0; i < panels; ++i) {
      const bool alone = i + 1 == panels && panels % 2 == 1;
      unpack_chunk<F>({chunk.header + i * panel_bytes, chunk.pairs + i * panel_bytes, chunk.blocks},
                      alone ? 1 : 2, scratch.blocks + i / 2 * 2 * kBlocksPerChunk + i % 2);
    }
    const bool last = first + kBlocksPerChunk >= k_blocks;
    const uint8_t* next = last ? first_panel + panels * panel_bytes : chunk.pairs + F::kChunkBytes;
    for (uint32_t t = 0; t < tiles; ++t) {  // rows shared out evenly: no tile is left with one
      const uint32_t begin = static_cast<uint32_t>(uint64_t{rows} * t / tiles);
      const uint32_t end = static_cast<uint32_t>(uint64_t{rows} * (t + 1) / tiles);
      prefetch_part<F>(next, panel_bytes, panels, t, tiles);
      copy_rows<F>(*a.x, row_begin + begin, end - begin, first, chunk.blocks, scratch.rows);
      for (uint32_t pair = 0; pair < pairs; ++pair) {
        const UnpackedBlock* w = scratch.blocks + pair * 2 * kBlocksPerChunk;
        float* acc = scratch.acc + size_t{pair} * rows * 2 * kPanelCols;
        if (2 * pair + 1 < panels)
          tile_of<T, 2>(end - begin, w, scratch.rows, chunk.blocks, first == 0, acc + begin * 2 * kPanelCols);
        else
          tile_of<T, 1>(end - begin, w, scratch.rows, chunk.blocks, first == 0, acc + begin * kPanelCols);
      }
      if (!last) continue;
      for (uint32_t r = begin; r < end; ++r) finish_row(a, scratch, p, panels, rows, row_begin, r);
    }
  }
}

}  // namespace
}  // namespace kvasir::avx512
