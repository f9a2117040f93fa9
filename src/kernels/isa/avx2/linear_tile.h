#pragma once

#include "kernels/isa/avx2/linear_block.h"
#include "kernels/table.h"

// Rows of activations against half a panel. Few rows read the packed block itself; many rows sweep over a
// slice of K that was unpacked once into scratch, accumulators resting there between slices, which changes no
// bit. `Dots` is the set of instructions for integer dots (dots.h).
namespace kvasir::avx2 {
namespace {

inline constexpr int kTileRows = 4;
inline constexpr uint32_t kSliceBlocks = 16;
inline constexpr uint32_t kMaxSweepRows = 2048;

// One block of one panel, unpacked.
struct alignas(64) UnpackedBlock {
  uint8_t codes[2][kQuads][32];  // [half][quad]
  float d[2][2][kHalfCols];      // [half][group]
  float m[2][2][kHalfCols];
};

struct SweepScratch {
  UnpackedBlock blocks[kSliceBlocks];
  float acc[kMaxSweepRows * kPanelCols];  // [row][column]
};
static_assert(sizeof(SweepScratch) <= kLinearScratchBytes);

// Where a tile gets a block's half from: straight from the packed bytes ...
template <class Dots, class F, int Half>
struct PackedSource {
  Chunk<F> chunk;
  uint32_t block;

  template <int I>
  [[gnu::always_inline]] __m256i quad() const {
    return unpack_quad<F, I, Half, Dots::template kSigned<F>>(chunk.codes(block));
  }
  [[gnu::always_inline]] HalfScales<F> scales() const { return load_scales<F, Half>(chunk, block); }
};

// ... or from scratch.
template <class F, int Half>
struct UnpackedSource {
  const UnpackedBlock* block;

  template <int I>
  [[gnu::always_inline]] __m256i quad() const {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(block->codes[Half][I]));
  }
  [[gnu::always_inline]] HalfScales<F> scales() const {
    HalfScales<F> s;
    unroll<F::kGroups>([&](auto g) __attribute__((always_inline)) {
      constexpr int kG = decltype(g)::value;
      s.d[kG] = _mm256_load_ps(block->d[Half][kG]);
      if constexpr (F::kHasMin) s.m[kG] = _mm256_load_ps(block->m[Half][kG]);
    });
    return s;
  }
};

// -(zero point) * (sum of q); signed codes have no zero point.
template <class Dots, class F>
[[gnu::always_inline]] inline __m256i dot_start(int32_t nsum) {
  if constexpr (F::kZero == 0 || Dots::template kSigned<F>) return _mm256_setzero_si256();
  return _mm256_set1_epi32(nsum * F::kZero);
}

// One block, as scalar::linear defines it. `group` is the activation group of the first row, `k_blocks` the
// way to the next row's.
template <class Dots, class F, int Rows, class Source>
[[gnu::always_inline]] inline void tile_block(const Source& source, const QuantRows& x, size_t group,
                                              size_t k_blocks, __m256 (&acc)[Rows]) {
  constexpr int kCount = static_cast<int>(kQuads) / F::kGroups;
  const HalfScales<F> s = source.scales();
  __m256 joined[Rows];
  unroll<F::kGroups>([&](auto g) __attribute__((always_inline)) {
    constexpr int kG = decltype(g)::value;
    __m256i dots[Rows];
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      const size_t at = group + decltype(r)::value * k_blocks;
      dots[decltype(r)::value] = dot_start<Dots, F>(F::kGroups == 1 ? x.nsum[at] : x.nsum16[2 * at + kG]);
    });
    Dots::template add<F, kG * kCount, kCount>(source, x.q + group * kGroup, k_blocks * kGroup, dots);
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      constexpr int kR = decltype(r)::value;
      const __m256 dot = _mm256_cvtepi32_ps(dots[kR]);
      if constexpr (F::kGroups == 1) {
        const __m256 scale = _mm256_mul_ps(s.d[0], _mm256_set1_ps(x.d[group + kR * k_blocks]));
        acc[kR] = _mm256_fmadd_ps(dot, scale, acc[kR]);
        if constexpr (F::kHasMin)
          acc[kR] = _mm256_fmadd_ps(s.m[0], _mm256_set1_ps(x.ds[group + kR * k_blocks]), acc[kR]);
      } else {
        joined[kR] = kG == 0 ? _mm256_mul_ps(dot, s.d[0]) : _mm256_fmadd_ps(dot, s.d[kG], joined[kR]);
      }
    });
  });
  if constexpr (F::kGroups == 2)
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      constexpr int kR = decltype(r)::value;
      const size_t at = group + kR * k_blocks;
      if constexpr (F::kHasMin)
        unroll<2>([&](auto g) __attribute__((always_inline)) {
          const __m256 nsum = _mm256_set1_ps(static_cast<float>(x.nsum16[2 * at + decltype(g)::value]));
          joined[kR] = _mm256_fnmadd_ps(s.m[decltype(g)::value], nsum, joined[kR]);
        });
      acc[kR] = _mm256_fmadd_ps(joined[kR], _mm256_set1_ps(x.d[at]), acc[kR]);
    });
}

// Bias, then the residual, into the columns of half `half` of panel `p` that exist.
[[gnu::always_inline]] inline void finish(const LinearArgs& a, uint32_t p, uint32_t half, uint32_t row,
                                          __m256 acc) {
  const uint32_t first = p * kPanelCols + half * kHalfCols;
  if (first >= a.w->n) return;
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const uint32_t left = a.w->n - first < kHalfCols ? a.w->n - first : kHalfCols;
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(left)), lanes);
  float* out = a.out + row * a.ldo + first;
  if (a.bias != nullptr) acc = _mm256_add_ps(acc, _mm256_maskload_ps(a.bias + first, mask));
  if (a.mode == LinearOutput::kAdd) acc = _mm256_add_ps(_mm256_maskload_ps(out, mask), acc);
  _mm256_maskstore_ps(out, mask, acc);
}

[[gnu::always_inline]] inline const uint8_t* panel_of(const PackedMatrix& w, uint32_t p) {
  return reinterpret_cast<const uint8_t*>(w.data) + p * w.panel_bytes;
}

// Rows [row, row + Rows) of panel `p`, from the packed bytes.
template <class Dots, class F, int Rows>
[[gnu::noinline]] void rows_of_panel(const LinearArgs& a, uint32_t p, uint32_t row) {
  const uint32_t k_blocks = a.w->k / kGroup;
  const uint8_t* panel = panel_of(*a.w, p);
  const QuantRows x = *a.x;
  __m256 acc[2][Rows];
  unroll<2 * Rows>([&](auto i) __attribute__((always_inline)) {
    acc[decltype(i)::value / Rows][decltype(i)::value % Rows] = _mm256_setzero_ps();
  });
  for (uint32_t first = 0; first < k_blocks; first += kBlocksPerChunk) {
    const Chunk<F> chunk = chunk_at<F>(panel, k_blocks, first);
    for (uint32_t b = 0; b < chunk.blocks; ++b) {
      const size_t group = size_t{row} * k_blocks + first + b;
      tile_block<Dots, F>(PackedSource<Dots, F, 0>{chunk, b}, x, group, k_blocks, acc[0]);
      tile_block<Dots, F>(PackedSource<Dots, F, 1>{chunk, b}, x, group, k_blocks, acc[1]);
    }
  }
  unroll<2 * Rows>([&](auto i) __attribute__((always_inline)) {
    constexpr int kI = decltype(i)::value;
    finish(a, p, kI / Rows, row + kI % Rows, acc[kI / Rows][kI % Rows]);
  });
}

template <class Dots, class F, int Half>
[[gnu::always_inline]] inline void unpack_half(const Chunk<F>& chunk, uint32_t b, UnpackedBlock& out) {
  unroll<8>([&](auto i) __attribute__((always_inline)) {
    constexpr int kI = decltype(i)::value;
    _mm256_store_si256(reinterpret_cast<__m256i*>(out.codes[Half][kI]),
                       unpack_quad<F, kI, Half, Dots::template kSigned<F>>(chunk.codes(b)));
  });
  const HalfScales<F> s = load_scales<F, Half>(chunk, b);
  unroll<F::kGroups>([&](auto g) __attribute__((always_inline)) {
    constexpr int kG = decltype(g)::value;
    _mm256_store_ps(out.d[Half][kG], s.d[kG]);
    if constexpr (F::kHasMin) _mm256_store_ps(out.m[Half][kG], s.m[kG]);
  });
}

template <class Dots, class F>
[[gnu::noinline]] void unpack_slice(const PackedMatrix& w, uint32_t p, uint32_t first, uint32_t count,
                                    UnpackedBlock* out) {
  for (uint32_t done = 0; done < count; done += kBlocksPerChunk) {
    const Chunk<F> chunk = chunk_at<F>(panel_of(w, p), w.k / kGroup, first + done);
    for (uint32_t b = 0; b < chunk.blocks; ++b) {
      unpack_half<Dots, F, 0>(chunk, b, out[done + b]);
      unpack_half<Dots, F, 1>(chunk, b, out[done + b]);
    }
  }
}

// Rows [row, row + Rows) over `count` unpacked blocks from block `first`; `fresh`: the accumulators start at
// zero.
template <class Dots, class F, int Half, int Rows>
[[gnu::noinline]] void tile(const UnpackedBlock* w, const QuantRows& x, uint32_t row, uint32_t first,
                            uint32_t count, bool fresh, float* sums) {
  const size_t k_blocks = x.k / kGroup;
  __m256 acc[Rows];
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    acc[kR] = fresh ? _mm256_setzero_ps() : _mm256_load_ps(sums + kR * kPanelCols + Half * kHalfCols);
  });
  const size_t group = row * k_blocks + first;
  for (uint32_t b = 0; b < count; ++b)
    tile_block<Dots, F>(UnpackedSource<F, Half>{w + b}, x, group + b, k_blocks, acc);
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    _mm256_store_ps(sums + kR * kPanelCols + Half * kHalfCols, acc[kR]);
  });
}

template <class Dots, class F, int Rows>
[[gnu::always_inline]] inline void tile_pair(const UnpackedBlock* w, const QuantRows& x, uint32_t row,
                                             uint32_t first, uint32_t count, bool fresh, float* sums) {
  tile<Dots, F, 0, Rows>(w, x, row, first, count, fresh, sums);
  tile<Dots, F, 1, Rows>(w, x, row, first, count, fresh, sums);
}

// Rows [row_begin, row_end) of panel `p`.
template <class Dots, class F>
void sweep(const LinearArgs& a, uint32_t p, uint32_t row_begin, uint32_t row_end) {
  auto& scratch = *reinterpret_cast<SweepScratch*>(a.scratch);
  const uint32_t k_blocks = a.w->k / kGroup;
  const uint32_t rows = row_end - row_begin;
  for (uint32_t first = 0; first < k_blocks; first += kSliceBlocks) {
    const uint32_t count = k_blocks - first < kSliceBlocks ? k_blocks - first : kSliceBlocks;
    unpack_slice<Dots, F>(*a.w, p, first, count, scratch.blocks);
    for (uint32_t r = 0; r < rows; r += kTileRows) {
      const uint32_t row = row_begin + r;
      float* sums = scratch.acc + size_t{r} * kPanelCols;
      switch (rows - r) {
        case 1:
          tile_pair<Dots, F, 1>(scratch.blocks, *a.x, row, first, count, first == 0, sums);
          break;
        case 2:
          tile_pair<Dots, F, 2>(scratch.blocks, *a.x, row, first, count, first == 0, sums);
          break;
        case 3:
          tile_pair<Dots, F, 3>(scratch.blocks, *a.x, row, first, count, first == 0, sums);
          break;
        default:
          tile_pair<Dots, F, 4>(scratch.blocks, *a.x, row, first, count, first == 0, sums);
          break;
      }
    }
  }
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t half = 0; half < 2; ++half)
      finish(a, p, half, row_begin + r,
             _mm256_load_ps(scratch.acc + size_t{r} * kPanelCols + half * kHalfCols));
}

}  // namespace
}  // namespace kvasir::avx2
