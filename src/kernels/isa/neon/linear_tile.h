#pragma once

#include "kernels/isa/neon/linear_block.h"
#include "kernels/table.h"

// Rows of activations against half a panel: SDOT takes four outputs of a quad as a vector and four inputs of
// a row as one lane. Few rows read the packed block itself; many rows sweep over a slice of K that was
// unpacked once into scratch, accumulators resting there between slices, which changes no bit.
namespace kvasir::neon {
namespace {

// 4 rows x 8 outputs: of 32 registers, 8 integer and 8 float accumulators and 4 with activations.
inline constexpr int kTileRows = 4;
inline constexpr uint32_t kSliceBlocks = 16;
inline constexpr uint32_t kMaxSweepRows = 2048;

// One block of one panel, unpacked.
struct alignas(64) UnpackedBlock {
  int8_t codes[2][kQuads][32];  // [half][quad]
  float d[2][2][kHalfCols];     // [half][group]
  float m[2][2][kHalfCols];
};

struct SweepScratch {
  UnpackedBlock blocks[kSliceBlocks];
  float acc[kMaxSweepRows * kPanelCols];  // [row][column]
};
static_assert(sizeof(SweepScratch) <= kLinearScratchBytes);

// Where a tile gets a block's half from: straight from the packed bytes ...
template <class F, int Half>
struct PackedSource {
  Chunk<F> chunk;
  uint32_t block;

  template <int I>
  [[gnu::always_inline]] Quad quad() const {
    return unpack_quad<F, I, Half>(chunk.codes(block));
  }
  [[gnu::always_inline]] HalfScales<F> scales() const { return load_scales<F, Half>(chunk, block); }
};

// ... or from scratch.
template <class F, int Half>
struct UnpackedSource {
  const UnpackedBlock* block;

  template <int I>
  [[gnu::always_inline]] Quad quad() const {
    return {vld1q_s8(block->codes[Half][I]), vld1q_s8(block->codes[Half][I] + 16)};
  }
  [[gnu::always_inline]] HalfScales<F> scales() const {
    HalfScales<F> s;
    unroll<F::kGroups>([&](auto g) __attribute__((always_inline)) {
      constexpr int kG = decltype(g)::value;
      s.d[kG] = load(block->d[Half][kG]);
      if constexpr (F::kHasMin) s.m[kG] = load(block->m[Half][kG]);
    });
    return s;
  }
};

// -(zero point) * (sum of q); signed codes have no zero point.
template <class F>
[[gnu::always_inline]] inline I32x8 dot_start(int32_t nsum) {
  return broadcast(F::kZero == 0 || kSignedCodes<F> ? 0 : nsum * F::kZero);
}

// dots[r] += quads [First, First + Count) times row r, whose activations are `k` bytes after those of row r
// - 1. Count is 4 or 8.
template <class F, int First, int Count, int Rows, class Source>
[[gnu::always_inline]] inline void tile_dots(const Source& source, const int8_t* q, size_t k,
                                             I32x8 (&dots)[Rows]) {
  unroll<Count / 4>([&](auto part) __attribute__((always_inline)) {
    constexpr int kPart = decltype(part)::value;
    int8x16_t a[Rows];
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      a[decltype(r)::value] = vld1q_s8(q + decltype(r)::value * k + 4 * First + 16 * kPart);
    });
    unroll<4>([&](auto i) __attribute__((always_inline)) {
      constexpr int kLane = decltype(i)::value;
      const Quad w = source.template quad<First + 4 * kPart + kLane>();
      unroll<Rows>([&](auto r) __attribute__((always_inline)) {
        constexpr int kR = decltype(r)::value;
        dots[kR].lo = vdotq_laneq_s32(dots[kR].lo, w.lo, a[kR], kLane);
        dots[kR].hi = vdotq_laneq_s32(dots[kR].hi, w.hi, a[kR], kLane);
      });
    });
  });
}

// One block, as scalar::linear defines it. `group` is the activation group of the first row, `k_blocks` the
// way to the next row's.
template <class F, int Rows, class Source>
[[gnu::always_inline]] inline void tile_block(const Source& source, const QuantRows& x, size_t group,
                                              size_t k_blocks, F32x8 (&acc)[Rows]) {
  constexpr int kCount = static_cast<int>(kQuads) / F::kGroups;
  const HalfScales<F> s = source.scales();
  F32x8 joined[Rows];
  unroll<F::kGroups>([&](auto g) __attribute__((always_inline)) {
    constexpr int kG = decltype(g)::value;
    I32x8 dots[Rows];
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      const size_t at = group + decltype(r)::value * k_blocks;
      dots[decltype(r)::value] = dot_start<F>(F::kGroups == 1 ? x.nsum[at] : x.nsum16[2 * at + kG]);
    });
    tile_dots<F, kG * kCount, kCount>(source, x.q + group * kGroup, k_blocks * kGroup, dots);
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      constexpr int kR = decltype(r)::value;
      const F32x8 dot = to_float(dots[kR]);
      if constexpr (F::kGroups == 1) {
        acc[kR] = fma(dot, mul(s.d[0], broadcast(x.d[group + kR * k_blocks])), acc[kR]);
        if constexpr (F::kHasMin) acc[kR] = fma(s.m[0], broadcast(x.ds[group + kR * k_blocks]), acc[kR]);
      } else {
        joined[kR] = kG == 0 ? mul(dot, s.d[0]) : fma(dot, s.d[kG], joined[kR]);
      }
    });
  });
  if constexpr (F::kGroups == 2)
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      constexpr int kR = decltype(r)::value;
      const size_t at = group + kR * k_blocks;
      if constexpr (F::kHasMin)
        unroll<2>([&](auto g) __attribute__((always_inline)) {
          const F32x8 nsum = broadcast(static_cast<float>(x.nsum16[2 * at + decltype(g)::value]));
          joined[kR] = fnma(s.m[decltype(g)::value], nsum, joined[kR]);
        });
      acc[kR] = fma(joined[kR], broadcast(x.d[at]), acc[kR]);
    });
}

// Bias, then the residual, into the columns of half `half` of panel `p` that exist.
[[gnu::always_inline]] inline void finish(const LinearArgs& a, uint32_t p, uint32_t half, uint32_t row,
                                          F32x8 acc) {
  const uint32_t first = p * kPanelCols + half * kHalfCols;
  if (first >= a.w->n) return;
  float* out = a.out + row * a.ldo + first;
  if (a.w->n - first >= kHalfCols) {
    if (a.bias != nullptr) acc = add(acc, load(a.bias + first));
    if (a.mode == LinearOutput::kAdd) acc = add(load(out), acc);
    return store(out, acc);
  }
  float lanes[kHalfCols];
  store(lanes, acc);
  for (uint32_t c = 0; c < a.w->n - first; ++c) {
    const float y = a.bias != nullptr ? lanes[c] + a.bias[first + c] : lanes[c];
    out[c] = a.mode == LinearOutput::kAdd ? out[c] + y : y;
  }
}

[[gnu::always_inline]] inline const uint8_t* panel_of(const PackedMatrix& w, uint32_t p) {
  return reinterpret_cast<const uint8_t*>(w.data) + p * w.panel_bytes;
}

// Rows [row, row + Rows) of panel `p`, from the packed bytes.
template <class F, int Rows>
[[gnu::noinline]] void rows_of_panel(const LinearArgs& a, uint32_t p, uint32_t row) {
  const uint32_t k_blocks = a.w->k / kGroup;
  const uint8_t* panel = panel_of(*a.w, p);
  const QuantRows x = *a.x;
  F32x8 low[Rows];
  F32x8 high[Rows];
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    low[decltype(r)::value] = broadcast(0.0f);
    high[decltype(r)::value] = broadcast(0.0f);
  });
  for (uint32_t first = 0; first < k_blocks; first += kBlocksPerChunk) {
    const Chunk<F> chunk = chunk_at<F>(panel, k_blocks, first);
    for (uint32_t b = 0; b < chunk.blocks; ++b) {
      const size_t group = size_t{row} * k_blocks + first + b;
      tile_block<F>(PackedSource<F, 0>{chunk, b}, x, group, k_blocks, low);
      tile_block<F>(PackedSource<F, 1>{chunk, b}, x, group, k_blocks, high);
    }
  }
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    finish(a, p, 0, row + kR, low[kR]);
    finish(a, p, 1, row + kR, high[kR]);
  });
}

template <class F, int Half>
[[gnu::always_inline]] inline void unpack_half(const Chunk<F>& chunk, uint32_t b, UnpackedBlock& out) {
  unroll<8>([&](auto i) __attribute__((always_inline)) {
    constexpr int kI = decltype(i)::value;
    const Quad w = unpack_quad<F, kI, Half>(chunk.codes(b));
    vst1q_s8(out.codes[Half][kI], w.lo);
    vst1q_s8(out.codes[Half][kI] + 16, w.hi);
  });
  const HalfScales<F> s = load_scales<F, Half>(chunk, b);
  unroll<F::kGroups>([&](auto g) __attribute__((always_inline)) {
    constexpr int kG = decltype(g)::value;
    store(out.d[Half][kG], s.d[kG]);
    if constexpr (F::kHasMin) store(out.m[Half][kG], s.m[kG]);
  });
}

template <class F>
[[gnu::noinline]] void unpack_slice(const PackedMatrix& w, uint32_t p, uint32_t first, uint32_t count,
                                    UnpackedBlock* out) {
  for (uint32_t done = 0; done < count; done += kBlocksPerChunk) {
    const Chunk<F> chunk = chunk_at<F>(panel_of(w, p), w.k / kGroup, first + done);
    for (uint32_t b = 0; b < chunk.blocks; ++b) {
      unpack_half<F, 0>(chunk, b, out[done + b]);
      unpack_half<F, 1>(chunk, b, out[done + b]);
    }
  }
}

// Rows [row, row + Rows) over `count` unpacked blocks from block `first`; `fresh`: the accumulators start at
// zero.
template <class F, int Half, int Rows>
[[gnu::noinline]] void tile(const UnpackedBlock* w, const QuantRows& x, uint32_t row, uint32_t first,
                            uint32_t count, bool fresh, float* sums) {
  const size_t k_blocks = x.k / kGroup;
  F32x8 acc[Rows];
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    acc[kR] = fresh ? broadcast(0.0f) : load(sums + kR * kPanelCols + Half * kHalfCols);
  });
  const size_t group = row * k_blocks + first;
  for (uint32_t b = 0; b < count; ++b)
    tile_block<F>(UnpackedSource<F, Half>{w + b}, x, group + b, k_blocks, acc);
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    store(sums + kR * kPanelCols + Half * kHalfCols, acc[kR]);
  });
}

template <class F, int Rows>
[[gnu::always_inline]] inline void tile_pair(const UnpackedBlock* w, const QuantRows& x, uint32_t row,
                                             uint32_t first, uint32_t count, bool fresh, float* sums) {
  tile<F, 0, Rows>(w, x, row, first, count, fresh, sums);
  tile<F, 1, Rows>(w, x, row, first, count, fresh, sums);
}

// Rows [row_begin, row_end) of panel `p`.
template <class F>
void sweep(const LinearArgs& a, uint32_t p, uint32_t row_begin, uint32_t row_end) {
  auto& scratch = *reinterpret_cast<SweepScratch*>(a.scratch);
  const uint32_t k_blocks = a.w->k / kGroup;
  const uint32_t rows = row_end - row_begin;
  for (uint32_t first = 0; first < k_blocks; first += kSliceBlocks) {
    const uint32_t count = k_blocks - first < kSliceBlocks ? k_blocks - first : kSliceBlocks;
    unpack_slice<F>(*a.w, p, first, count, scratch.blocks);
    for (uint32_t r = 0; r < rows; r += kTileRows) {
      const uint32_t row = row_begin + r;
      float* sums = scratch.acc + size_t{r} * kPanelCols;
      switch (rows - r) {
        case 1:
          tile_pair<F, 1>(scratch.blocks, *a.x, row, first, count, first == 0, sums);
          break;
        case 2:
          tile_pair<F, 2>(scratch.blocks, *a.x, row, first, count, first == 0, sums);
          break;
        case 3:
          tile_pair<F, 3>(scratch.blocks, *a.x, row, first, count, first == 0, sums);
          break;
        default:
          tile_pair<F, 4>(scratch.blocks, *a.x, row, first, count, first == 0, sums);
          break;
      }
    }
  }
  for (uint32_t r = 0; r < rows; ++r)
    for (uint32_t half = 0; half < 2; ++half)
      finish(a, p, half, row_begin + r, load(scratch.acc + size_t{r} * kPanelCols + half * kHalfCols));
}

}  // namespace
}  // namespace kvasir::neon
