#pragma once

#include "kernels/isa/avx512/linear_rows.h"

// Many rows: a slice of K of up to two panels is unpacked once into scratch, then all rows sweep over it in
// tiles of up to six rows by 32 columns. Accumulators rest in scratch between slices, which changes no bit.
namespace kvasir::avx512 {
namespace {

inline constexpr int kTileRows = 6;
inline constexpr uint32_t kSliceBlocks = 16;
inline constexpr uint32_t kMaxSweepRows = 2048;

// One block of one panel, unpacked. What the tile needs to know of the format is here and in its template
// arguments.
struct alignas(64) UnpackedBlock {
  uint8_t codes[kBlockCodes];
  float d[2][kPanelCols];
  float m[2][kPanelCols];
};

// Where a sweep's data lie in the caller's scratch.
struct SweepScratch {
  UnpackedBlock blocks[kSliceBlocks * 2];     // [block][panel]
  float acc[kMaxSweepRows * 2 * kPanelCols];  // [row][panel][column]
};
static_assert(sizeof(SweepScratch) <= kLinearScratchBytes);

// The parts of a format that outlive unpacking.
template <int Groups, int ZeroShift, bool HasMin>
struct TileClass {
  static constexpr int kGroups = Groups;
  static constexpr int kZeroShift = ZeroShift;
  static constexpr bool kHasMin = HasMin;
};

template <class F>
[[gnu::always_inline]] inline void unpack_block(const Chunk<F>& chunk, const ChunkScales& chunk_scales,
                                                uint32_t b, UnpackedBlock& out) {
  __m512i w[kQuads];
  unpack_codes<F>(chunk.codes(b), w);
  unroll<8>([&](auto i) __attribute__((always_inline)) {
    _mm512_store_si512(out.codes + decltype(i)::value * kQuadBytes, w[decltype(i)::value]);
  });
  const BlockScales<F> s = load_scales<F>(chunk.scales(b), chunk_scales);
  unroll<F::kGroups>([&](auto g) __attribute__((always_inline)) {
    constexpr int kG = decltype(g)::value;
    _mm512_store_ps(out.d[kG], s.d[kG]);
    if constexpr (F::kHasMin) _mm512_store_ps(out.m[kG], s.m[kG]);
  });
}

// Blocks [first, first + count) of panel `p` into every `panels`-th place of `out`.
template <class F>
[[gnu::noinline]] void unpack_slice(const PackedMatrix& w, uint32_t p, uint32_t first, uint32_t count,
                                    uint32_t panels, UnpackedBlock* out) {
  const uint32_t k_blocks = w.k / kGroup;
  const uint8_t* panel = reinterpret_cast<const uint8_t*>(w.data) + p * w.panel_bytes;
  for (uint32_t done = 0; done < count; done += kBlocksPerChunk) {
    const Chunk<F> chunk = chunk_at<F>(panel, k_blocks, first + done);
    const ChunkScales chunk_scales = load_chunk_scales<F>(chunk);
    for (uint32_t b = 0; b < chunk.blocks; ++b) {
      constexpr size_t kBytes = F::kFullChunkBytes / kBlocksPerChunk;
      prefetch_ahead<kBytes>(chunk.data + b * kBytes);
      unpack_block<F>(chunk, chunk_scales, b, out[(done + b) * panels]);
    }
  }
}

template <class T>
[[gnu::always_inline]] inline __m512i tile_start(const int32_t* nsum) {
  if constexpr (T::kZeroShift == kNoZero) return _mm512_setzero_si512();
  return _mm512_slli_epi32(_mm512_set1_epi32(*nsum), T::kZeroShift);
}

// dots[r][p] += quads [First, First + Count) of one block.
template <int First, int Count, int Rows, int Panels>
[[gnu::always_inline]] inline void tile_dots(const UnpackedBlock* w, const int8_t* q, size_t k,
                                             __m512i (&dots)[Rows][Panels]) {
  unroll<Count>([&](auto i) __attribute__((always_inline)) {
    constexpr int kI = First + decltype(i)::value;
    __m512i codes[Panels];
    unroll<Panels>([&](auto p) __attribute__((always_inline)) {
      constexpr int kP = decltype(p)::value;
      codes[kP] = _mm512_load_si512(w[kP].codes + kI * kQuadBytes);
    });
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      constexpr int kR = decltype(r)::value;
      const __m512i a = broadcast_quad(q + kR * k + 4 * kI);
      unroll<Panels>([&](auto p) __attribute__((always_inline)) {
        constexpr int kP = decltype(p)::value;
        dots[kR][kP] = _mm512_dpbusd_epi32(dots[kR][kP], codes[kP], a);
      });
    });
  });
}

// One block with one scale per 32 inputs. `group` is the activation group of the first row, `k_blocks` the
// way to the next row's.
template <class T, int Rows, int Panels>
requires(T::kGroups == 1)
    [[gnu::always_inline]] inline void tile_block(const UnpackedBlock* w, const QuantRows& x, size_t group,
                                                  size_t k_blocks, __m512 (&acc)[Rows][Panels]) {
  __m512i dots[Rows][Panels];
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    const __m512i start = tile_start<T>(x.nsum + group + kR * k_blocks);
    unroll<Panels>([&](auto p) __attribute__((always_inline)) { dots[kR][decltype(p)::value] = start; });
  });
  tile_dots<0, 8>(w, x.q + group * kGroup, k_blocks * kGroup, dots);
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    const __m512 ad = _mm512_set1_ps(x.d[group + kR * k_blocks]);
    unroll<Panels>([&](auto p) __attribute__((always_inline)) {
      constexpr int kP = decltype(p)::value;
      const __m512 s = _mm512_mul_ps(ad, _mm512_load_ps(w[kP].d[0]));
      acc[kR][kP] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dots[kR][kP]), s, acc[kR][kP]);
      if constexpr (T::kHasMin) {
        const __m512 ds = _mm512_set1_ps(x.ds[group + kR * k_blocks]);
        acc[kR][kP] = _mm512_fmadd_ps(ds, _mm512_load_ps(w[kP].m[0]), acc[kR][kP]);
      }
    });
  });
}

// One block with a scale per 16 inputs; the halves are joined before the activation's scale.
template <class T, int Rows, int Panels>
requires(T::kGroups == 2)
    [[gnu::always_inline]] inline void tile_block(const UnpackedBlock* w, const QuantRows& x, size_t group,
                                                  size_t k_blocks, __m512 (&acc)[Rows][Panels]) {
  const int8_t* q = x.q + group * kGroup;
  const size_t k = k_blocks * kGroup;
  __m512 joined[Rows][Panels];
  unroll<2>([&](auto half) __attribute__((always_inline)) {
    constexpr int kH = decltype(half)::value;
    __m512i dots[Rows][Panels];
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      constexpr int kR = decltype(r)::value;
      const __m512i start = tile_start<T>(x.nsum16 + 2 * (group + kR * k_blocks) + kH);
      unroll<Panels>([&](auto p) __attribute__((always_inline)) { dots[kR][decltype(p)::value] = start; });
    });
    tile_dots<4 * kH, 4>(w, q, k, dots);
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      constexpr int kR = decltype(r)::value;
      unroll<Panels>([&](auto p) __attribute__((always_inline)) {
        constexpr int kP = decltype(p)::value;
        const __m512 dot = _mm512_cvtepi32_ps(dots[kR][kP]);
        const __m512 d = _mm512_load_ps(w[kP].d[kH]);
        joined[kR][kP] = kH == 0 ? _mm512_mul_ps(dot, d) : _mm512_fmadd_ps(dot, d, joined[kR][kP]);
      });
    });
  });
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    const size_t g = group + kR * k_blocks;
    const __m512 ad = _mm512_set1_ps(x.d[g]);
    unroll<Panels>([&](auto p) __attribute__((always_inline)) {
      constexpr int kP = decltype(p)::value;
      __m512 t = joined[kR][kP];
      if constexpr (T::kHasMin)
        unroll<2>([&](auto half) __attribute__((always_inline)) {
          constexpr int kH = decltype(half)::value;
          const __m512 nsum = _mm512_cvtepi32_ps(_mm512_set1_epi32(x.nsum16[2 * g + kH]));
          t = _mm512_fnmadd_ps(nsum, _mm512_load_ps(w[kP].m[kH]), t);
        });
      acc[kR][kP] = _mm512_fmadd_ps(t, ad, acc[kR][kP]);
    });
  });
}

// Rows [row, row + Rows) over `count` blocks from `first`; `fresh`: the accumulators start at zero.
template <class T, int Rows, int Panels>
[[gnu::noinline]] void tile(const UnpackedBlock* w, const QuantRows& x, uint32_t row, uint32_t first,
                            uint32_t count, bool fresh, float* sums) {
  const size_t k_blocks = x.k / kGroup;
  __m512 acc[Rows][Panels];
  unroll<Rows * Panels>([&](auto i) __attribute__((always_inline)) {
    constexpr int kI = decltype(i)::value;
    acc[kI / Panels][kI % Panels] = fresh ? _mm512_setzero_ps() : _mm512_load_ps(sums + kI * kPanelCols);
  });
  const size_t group = row * k_blocks + first;
  for (uint32_t b = 0; b < count; ++b) tile_block<T>(w + b * Panels, x, group + b, k_blocks, acc);
  unroll<Rows * Panels>([&](auto i) __attribute__((always_inline)) {
    constexpr int kI = decltype(i)::value;
    _mm512_store_ps(sums + kI * kPanelCols, acc[kI / Panels][kI % Panels]);
  });
}

template <class T, int Panels>
[[gnu::always_inline]] inline void tile_of(uint32_t rows, const UnpackedBlock* w, const QuantRows& x,
                                           uint32_t row, uint32_t first, uint32_t count, bool fresh,
                                           float* sums) {
  switch (rows) {
    case 1:
      return tile<T, 1, Panels>(w, x, row, first, count, fresh, sums);
    case 2:
      return tile<T, 2, Panels>(w, x, row, first, count, fresh, sums);
    case 3:
      return tile<T, 3, Panels>(w, x, row, first, count, fresh, sums);
    case 4:
      return tile<T, 4, Panels>(w, x, row, first, count, fresh, sums);
    case 5:
      return tile<T, 5, Panels>(w, x, row, first, count, fresh, sums);
    default:
      return tile<T, 6, Panels>(w, x, row, first, count, fresh, sums);
  }
}

// Rows [row_begin, row_end) of panels [p, p + Panels).
template <class F, int Panels>
void sweep(const LinearArgs& a, uint32_t p, uint32_t row_begin, uint32_t row_end) {
  using T = TileClass<F::kGroups, F::kZeroShift, F::kHasMin>;
  auto& scratch = *reinterpret_cast<SweepScratch*>(a.scratch);
  const uint32_t k_blocks = a.w->k / kGroup;
  const uint32_t rows = row_end - row_begin;
  const uint32_t tiles = (rows + kTileRows - 1) / kTileRows;
  for (uint32_t first = 0; first < k_blocks; first += kSliceBlocks) {
    const uint32_t count = k_blocks - first < kSliceBlocks ? k_blocks - first : kSliceBlocks;
    for (uint32_t i = 0; i < Panels; ++i)
      unpack_slice<F>(*a.w, p + i, first, count, Panels, scratch.blocks + i);
    for (uint32_t t = 0; t < tiles; ++t) {  // rows shared out evenly: no tile is left with one
      const uint32_t begin = static_cast<uint32_t>(uint64_t{rows} * t / tiles);
      const uint32_t end = static_cast<uint32_t>(uint64_t{rows} * (t + 1) / tiles);
      tile_of<T, Panels>(end - begin, scratch.blocks, *a.x, row_begin + begin, first, count, first == 0,
                         scratch.acc + size_t{begin} * Panels * kPanelCols);
    }
  }
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t i = 0; i < Panels; ++i)
      finish(a, p + i, row_begin + r, _mm512_load_ps(scratch.acc + (size_t{r} * Panels + i) * kPanelCols));
}

}  // namespace
}  // namespace kvasir::avx512
