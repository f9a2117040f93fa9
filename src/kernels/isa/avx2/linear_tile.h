#pragma once

#include "kernels/isa/avx2/linear_block.h"
#include "kernels/table.h"

// Rows of activations against a panel, which is two registers wide: each activation is loaded once for both.
// Few rows read the packed block itself; many rows sweep over a slice of K that was unpacked once into
// scratch, accumulators resting there between slices, which changes no bit. `Dots` is the set of instructions
// for integer dots (dots.h).
namespace kvasir::avx2 {
namespace {

// Sums of three rows by two halves, two of codes, an activation and a constant fill the sixteen registers.
inline constexpr int kTileRows = 3;
inline constexpr uint32_t kSliceBlocks = 24;  // 18 KiB unpacked: most of an L1 cache
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

// Where a tile gets a block from: straight from the packed bytes ...
template <class Dots, class F>
struct PackedSource {
  Chunk<F> chunk;
  uint32_t block;

  template <int I, int Half>
  [[gnu::always_inline]] __m256i quad() const {
    return unpack_quad<F, I, Half, Dots::template kSigned<F>>(chunk.codes(block));
  }
  template <int Half>
  [[gnu::always_inline]] HalfScales<F> scales() const {
    return load_scales<F, Half>(chunk, block);
  }
};

// ... or from scratch.
template <class F>
struct UnpackedSource {
  const UnpackedBlock* block;

  template <int I, int Half>
  [[gnu::always_inline]] __m256i quad() const {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(block->codes[Half][I]));
  }
  template <int Half>
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

// fn(row, half) for each of a tile's sums.
template <int Rows, class Fn>
[[gnu::always_inline]] inline void each_sum(const Fn& fn) {
  unroll<2 * Rows>([&](auto i) __attribute__((always_inline)) {
    constexpr int kI = decltype(i)::value;
    fn(std::integral_constant<int, kI / 2>{}, std::integral_constant<int, kI % 2>{});
  });
}

// The integer dots of scale group G of a block, as floats. `group` is the activation group of the first row,
// `k_blocks` the way to the next row's.
template <class Dots, class F, int G, int Rows, class Source>
[[gnu::always_inline]] inline void tile_dots(const Source& source, const QuantRows& x, size_t group,
                                             size_t k_blocks, __m256 (&out)[Rows][2]) {
  constexpr int kCount = static_cast<int>(kQuads) / F::kGroups;
  __m256i dots[Rows][2];
  each_sum<Rows>([&](auto r, auto h) __attribute__((always_inline)) {
    const size_t at = group + decltype(r)::value * k_blocks;
    dots[decltype(r)::value][decltype(h)::value] =
        dot_start<Dots, F>(F::kGroups == 1 ? x.nsum[at] : x.nsum16[2 * at + G]);
  });
  Dots::template add<F, G * kCount, kCount>(source, x.q + group * kGroup, k_blocks * kGroup, dots);
  each_sum<Rows>([&](auto r, auto h) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    constexpr int kH = decltype(h)::value;
    out[kR][kH] = _mm256_cvtepi32_ps(dots[kR][kH]);
  });
}

// One block, as scalar::linear defines it, of a format with a scale per 32 inputs.
template <class Dots, class F, int Rows, class Source>
requires(F::kGroups == 1)
    [[gnu::always_inline]] inline void tile_block(const Source& source, const QuantRows& x, size_t group,
                                                  size_t k_blocks, __m256 (&acc)[Rows][2]) {
  __m256 dots[Rows][2];
  tile_dots<Dots, F, 0>(source, x, group, k_blocks, dots);
  const HalfScales<F> s[2] = {source.template scales<0>(), source.template scales<1>()};
  each_sum<Rows>([&](auto r, auto h) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    constexpr int kH = decltype(h)::value;
    const size_t at = group + kR * k_blocks;
    const __m256 scale = _mm256_mul_ps(s[kH].d[0], _mm256_set1_ps(x.d[at]));
    acc[kR][kH] = _mm256_fmadd_ps(dots[kR][kH], scale, acc[kR][kH]);
    if constexpr (F::kHasMin)
      acc[kR][kH] = _mm256_fmadd_ps(s[kH].m[0], _mm256_set1_ps(x.ds[at]), acc[kR][kH]);
  });
}

// The same with a scale per 16 inputs.
template <class Dots, class F, int Rows, class Source>
requires(F::kGroups == 2)
    [[gnu::always_inline]] inline void tile_block(const Source& source, const QuantRows& x, size_t group,
                                                  size_t k_blocks, __m256 (&acc)[Rows][2]) {
  const HalfScales<F> s[2] = {source.template scales<0>(), source.template scales<1>()};
  __m256 joined[Rows][2];
  unroll<2>([&](auto g) __attribute__((always_inline)) {
    constexpr int kG = decltype(g)::value;
    __m256 dots[Rows][2];
    tile_dots<Dots, F, kG>(source, x, group, k_blocks, dots);
    each_sum<Rows>([&](auto r, auto h) __attribute__((always_inline)) {
      constexpr int kR = decltype(r)::value;
      constexpr int kH = decltype(h)::value;
      joined[kR][kH] = kG == 0 ? _mm256_mul_ps(dots[kR][kH], s[kH].d[0])
                               : _mm256_fmadd_ps(dots[kR][kH], s[kH].d[1], joined[kR][kH]);
    });
  });
  each_sum<Rows>([&](auto r, auto h) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    constexpr int kH = decltype(h)::value;
    const size_t at = group + kR * k_blocks;
    if constexpr (F::kHasMin)
      unroll<2>([&](auto g) __attribute__((always_inline)) {
        constexpr int kG = decltype(g)::value;
        const __m256 nsum = _mm256_set1_ps(static_cast<float>(x.nsum16[2 * at + kG]));
        joined[kR][kH] = _mm256_fnmadd_ps(s[kH].m[kG], nsum, joined[kR][kH]);
      });
    acc[kR][kH] = _mm256_fmadd_ps(joined[kR][kH], _mm256_set1_ps(x.d[at]), acc[kR][kH]);
  });
}

// Bias, then the residual, into the columns of half `half` of panel `p` that exist.
[[gnu::always_inline]] inline void finish(const LinearArgs& a, uint32_t p, uint32_t half, uint32_t row,
                                          __m256 acc) {
  const uint32_t first = p * kPanelCols + half * kHalfCols;
  if (first >= a.w->n) return;
  float* out = a.out + row * a.ldo + first;
  const uint32_t left = a.w->n - first;
  if (left >= kHalfCols) {  // masked stores are slow (all_lanes.h)
    if (a.bias != nullptr) acc = _mm256_add_ps(acc, _mm256_loadu_ps(a.bias + first));
    if (a.mode == LinearOutput::kAdd) acc = _mm256_add_ps(_mm256_loadu_ps(out), acc);
    _mm256_storeu_ps(out, acc);
    return;
  }
  const __m256i lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i mask = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(left)), lanes);
  if (a.bias != nullptr) acc = _mm256_add_ps(acc, _mm256_maskload_ps(a.bias + first, mask));
  if (a.mode == LinearOutput::kAdd) acc = _mm256_add_ps(_mm256_maskload_ps(out, mask), acc);
  _mm256_maskstore_ps(out, mask, acc);
}

[[gnu::always_inline]] inline const uint8_t* panel_of(const PackedMatrix& w, uint32_t p) {
  return reinterpret_cast<const uint8_t*>(w.data) + p * w.panel_bytes;
}

// The hardware's own prefetching does not run far enough ahead of one panel's stream: one row of Q4_1 takes
// 0.8 of its time with this, two rows 0.7 (Zen 3, both cores at work).
inline constexpr size_t kPrefetchAhead = 2048;

// Asks for the bytes of a pair of blocks.
template <class F>
[[gnu::always_inline]] inline void prefetch_pair(const uint8_t* p) {
  unroll<static_cast<int>((F::kPairBytes + 63) / 64)>([&](auto i) __attribute__((always_inline)) {
    _mm_prefetch(reinterpret_cast<const char*>(p + decltype(i)::value * 64), _MM_HINT_T0);
  });
}

// Rows [row, row + Rows) of panel `p`, from the packed bytes.
template <class Dots, class F, int Rows>
[[gnu::noinline]] void rows_of_panel(const LinearArgs& a, uint32_t p, uint32_t row) {
  const uint32_t k_blocks = a.w->k / kGroup;
  const uint8_t* panel = panel_of(*a.w, p);
  const QuantRows x = *a.x;
  __m256 acc[Rows][2];
  each_sum<Rows>([&](auto r, auto h) __attribute__((always_inline)) {
    acc[decltype(r)::value][decltype(h)::value] = _mm256_setzero_ps();
  });
  for (uint32_t first = 0; first < k_blocks; first += kBlocksPerChunk) {
    const Chunk<F> chunk = chunk_at<F>(panel, k_blocks, first);
    for (uint32_t b = 0; b < chunk.blocks; ++b) {
      if (b % 2 == 0) prefetch_pair<F>(chunk.pairs + b / 2 * F::kPairBytes + kPrefetchAhead);
      tile_block<Dots, F>(PackedSource<Dots, F>{chunk, b}, x, size_t{row} * k_blocks + first + b, k_blocks,
                          acc);
    }
  }
  each_sum<Rows>([&](auto r, auto h) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    constexpr int kH = decltype(h)::value;
    finish(a, p, kH, row + kR, acc[kR][kH]);
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
template <class Dots, class F, int Rows>
[[gnu::noinline]] void tile(const UnpackedBlock* w, const QuantRows& x, uint32_t row, uint32_t first,
                            uint32_t count, bool fresh, float* sums) {
  const size_t k_blocks = x.k / kGroup;
  __m256 acc[Rows][2];
  each_sum<Rows>([&](auto r, auto h) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    constexpr int kH = decltype(h)::value;
    acc[kR][kH] = fresh ? _mm256_setzero_ps() : _mm256_load_ps(sums + kR * kPanelCols + kH * kHalfCols);
  });
  const size_t group = row * k_blocks + first;
  for (uint32_t b = 0; b < count; ++b)
    tile_block<Dots, F>(UnpackedSource<F>{w + b}, x, group + b, k_blocks, acc);
  each_sum<Rows>([&](auto r, auto h) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    constexpr int kH = decltype(h)::value;
    _mm256_store_ps(sums + kR * kPanelCols + kH * kHalfCols, acc[kR][kH]);
  });
}

template <class Dots, class F>
[[gnu::always_inline]] inline void tile_of(uint32_t rows, const UnpackedBlock* w, const QuantRows& x,
                                           uint32_t row, uint32_t first, uint32_t count, bool fresh,
                                           float* sums) {
  switch (rows) {
    case 1:
      return tile<Dots, F, 1>(w, x, row, first, count, fresh, sums);
    case 2:
      return tile<Dots, F, 2>(w, x, row, first, count, fresh, sums);
    default:
      return tile<Dots, F, kTileRows>(w, x, row, first, count, fresh, sums);
  }
}

// Asks for part `part` of `parts` of the `blocks` blocks at `next`, which the next unpacking will read.
template <class F>
[[gnu::always_inline]] inline void prefetch_part(const uint8_t* next, uint32_t blocks, uint32_t part,
                                                 uint32_t parts) {
  const uint32_t lines = (blocks + kBlocksPerChunk - 1) / kBlocksPerChunk * F::kChunkBytes / 64;
  for (uint32_t line = lines * part / parts; line < lines * (part + 1) / parts; ++line)
    _mm_prefetch(reinterpret_cast<const char*>(next + size_t{line} * 64), _MM_HINT_T1);
}

// How many blocks of K are unpacked at once: even shares, in whole chunks.
[[gnu::always_inline]] inline uint32_t slice_blocks(uint32_t k_blocks) {
  const uint32_t slices = (k_blocks + kSliceBlocks - 1) / kSliceBlocks;
  const uint32_t share = (k_blocks + slices - 1) / slices;
  return (share + kBlocksPerChunk - 1) / kBlocksPerChunk * kBlocksPerChunk;
}

// Rows [row_begin, row_end) of panel `p`.
template <class Dots, class F>
void sweep(const LinearArgs& a, uint32_t p, uint32_t row_begin, uint32_t row_end) {
  auto& scratch = *reinterpret_cast<SweepScratch*>(a.scratch);
  const uint32_t k_blocks = a.w->k / kGroup;
  const uint32_t rows = row_end - row_begin;
  const uint32_t tiles = (rows + kTileRows - 1) / kTileRows;
  const uint32_t step = slice_blocks(k_blocks);
  for (uint32_t first = 0; first < k_blocks; first += step) {
    const uint32_t count = k_blocks - first < step ? k_blocks - first : step;
    unpack_slice<Dots, F>(*a.w, p, first, count, scratch.blocks);
    const bool last = first + step >= k_blocks;
    const uint32_t then = last ? 0 : first + step;
    const uint8_t* next = last ? panel_of(*a.w, p + 1) : chunk_at<F>(panel_of(*a.w, p), k_blocks, then).pairs;
    const uint32_t next_count = k_blocks - then < step ? k_blocks - then : step;
    for (uint32_t t = 0; t < tiles; ++t) {  // rows shared out evenly: the last tile is not left with one
      const auto begin = static_cast<uint32_t>(uint64_t{rows} * t / tiles);
      const auto end = static_cast<uint32_t>(uint64_t{rows} * (t + 1) / tiles);
      prefetch_part<F>(next, next_count, t, tiles);
      tile_of<Dots, F>(end - begin, scratch.blocks, *a.x, row_begin + begin, first, count, first == 0,
                       scratch.acc + size_t{begin} * kPanelCols);
    }
  }
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t half = 0; half < 2; ++half)
      finish(a, p, half, row_begin + r,
             _mm256_load_ps(scratch.acc + size_t{r} * kPanelCols + half * kHalfCols));
}

}  // namespace
}  // namespace kvasir::avx2
