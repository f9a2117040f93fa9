#pragma once

#include "kernels/isa/avx512/linear_block.h"
#include "kernels/table.h"

// Few rows: one panel at a time, each block unpacked into registers once and used by all rows from there.
namespace kvasir::avx512 {
namespace {

// Integer dot of quads [first, first + count) with one row's activations, from `start`. Two chains where one
// row alone would wait for the latency of the product.
template <int First, int Count, bool TwoChains>
[[gnu::always_inline]] inline __m512i dot_quads(const __m512i (&w)[kQuads], const int8_t* q, __m512i start) {
  __m512i odd = _mm512_setzero_si512();
  unroll<Count>([&](auto i) __attribute__((always_inline)) {
    constexpr int kI = First + decltype(i)::value;
    if constexpr (TwoChains && kI % 2 == 1)
      odd = _mm512_dpbusd_epi32(odd, w[kI], broadcast_quad(q + 4 * kI));
    else
      start = _mm512_dpbusd_epi32(start, w[kI], broadcast_quad(q + 4 * kI));
  });
  return TwoChains ? _mm512_add_epi32(start, odd) : start;
}

// -(zero point) * (sum of q), the start of an integer dot.
template <class F>
[[gnu::always_inline]] inline __m512i dot_start(const int32_t* nsum) {
  if constexpr (F::kZero == 0) return _mm512_setzero_si512();
  return _mm512_slli_epi32(_mm512_set1_epi32(*nsum), F::kZeroShift);
}

// One block of one row: `group` is the row's activation group.
template <class F, bool TwoChains>
[[gnu::always_inline]] inline __m512 accumulate(const __m512i (&w)[kQuads], const BlockScales<F>& s,
                                                const QuantRows& x, size_t group, __m512 acc) {
  const int8_t* q = x.q + group * kGroup;
  const __m512 ad = _mm512_set1_ps(x.d[group]);
  if constexpr (F::kGroups == 1) {
    const __m512i dot = dot_quads<0, 8, TwoChains>(w, q, dot_start<F>(x.nsum + group));
    acc = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), _mm512_mul_ps(s.d[0], ad), acc);
    if constexpr (F::kHasMin) acc = _mm512_fmadd_ps(s.m[0], _mm512_set1_ps(x.ds[group]), acc);
    return acc;
  } else {
    const int32_t* nsum = x.nsum16 + 2 * group;
    const __m512i dot0 = dot_quads<0, 4, false>(w, q, dot_start<F>(nsum));
    const __m512i dot1 = dot_quads<4, 4, false>(w, q, dot_start<F>(nsum + 1));
    __m512 t = _mm512_mul_ps(_mm512_cvtepi32_ps(dot0), s.d[0]);
    t = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot1), s.d[1], t);
    if constexpr (F::kHasMin)
      unroll<2>([&](auto i) __attribute__((always_inline)) {
        constexpr int kG = decltype(i)::value;
        t = _mm512_fnmadd_ps(s.m[kG], _mm512_set1_ps(static_cast<float>(nsum[kG])), t);
      });
    return _mm512_fmadd_ps(t, ad, acc);
  }
}

// Bias, then the residual, into columns of panel `p` that exist.
[[gnu::always_inline]] inline void finish(const LinearArgs& a, uint32_t p, uint32_t row, __m512 acc) {
  const uint32_t first = p * kPanelCols;
  const uint32_t left = a.w->n - first;
  const __mmask16 mask = static_cast<__mmask16>(left >= kPanelCols ? 0xFFFF : (1u << left) - 1);
  float* out = a.out + row * a.ldo + first;
  if (a.bias != nullptr) acc = _mm512_add_ps(acc, _mm512_maskz_loadu_ps(mask, a.bias + first));
  if (a.mode == LinearOutput::kAdd) acc = _mm512_add_ps(_mm512_maskz_loadu_ps(mask, out), acc);
  _mm512_mask_storeu_ps(out, mask, acc);
}

// With little arithmetic per byte the hardware's own prefetching of a forward stream is best left alone; with
// more it no longer runs far enough ahead. Five and six bits cost the most to unpack.
template <class F>
inline constexpr int kPrefetchFromRows = F::kBits == 8 || F::kBits <= 4 ? 4 : 2;
inline constexpr size_t kPrefetchAhead = 16384;

template <size_t Bytes>
[[gnu::always_inline]] inline void prefetch_ahead(const uint8_t* p) {
  unroll<(Bytes + 63) / 64>([&](auto i) __attribute__((always_inline)) {
    _mm_prefetch(reinterpret_cast<const char*>(p + kPrefetchAhead + decltype(i)::value * 64), _MM_HINT_T1);
  });
}

// One block times M rows; `group` is the activation group of the first row, `k_blocks` the way to the next's.
template <class F, int M>
[[gnu::always_inline]] inline void rows_block(const uint8_t* codes, const uint8_t* scales,
                                              const ChunkScales& chunk_scales, const QuantRows& x,
                                              size_t group, size_t k_blocks, __m512 (&acc)[M]) {
  __m512i w[kQuads];
  unpack_codes<F>(codes, w);
  const BlockScales<F> s = load_scales<F>(scales, chunk_scales);
  unroll<M>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    acc[kR] = accumulate<F, M == 1>(w, s, x, group + kR * k_blocks, acc[kR]);
  });
}

// Copies a panel's headers to `out` before anything else of it is read, so that the panel is read forwards.
template <class F>
[[gnu::always_inline]] inline void copy_headers(const uint8_t* panel, size_t k_blocks, uint8_t* out) {
  if constexpr (F::kTwoLevels)
    for (size_t i = 0; i < header_bytes<F>(k_blocks); i += F::kHeaderBytes)
      _mm512_storeu_si512(out + i, load_row(panel + i));
}

// Rows [row, row + M) of panels [p, p + Panels). Two blocks are written out, so that every load instruction
// moves on by the same stride: the processor's prefetchers go by instruction address.
template <class F, int M, int Panels = 1>
[[gnu::noinline]] void rows_of_panels(const LinearArgs& a, uint32_t p, uint32_t row) {
  const size_t k_blocks = a.w->k / kGroup;
  const size_t panel_bytes = a.w->panel_bytes;
  const uint8_t* first_panel = reinterpret_cast<const uint8_t*>(a.w->data) + p * panel_bytes;
  const QuantRows x = *a.x;
  uint8_t* headers = reinterpret_cast<uint8_t*>(a.scratch);
  __m512 acc[Panels][M];
  unroll<Panels * M>([&](auto i) __attribute__((always_inline)) {
    acc[decltype(i)::value / M][decltype(i)::value % M] = _mm512_setzero_ps();
  });
  for (size_t i = 0; i < Panels; ++i)
    copy_headers<F>(first_panel + i * panel_bytes, k_blocks, headers + i * header_bytes<F>(k_blocks));
  for (uint32_t first = 0; first < k_blocks; first += kBlocksPerChunk) {
    const Chunk<F> chunk = chunk_at<F>(first_panel, static_cast<uint32_t>(k_blocks), first);
    ChunkScales chunk_scales[Panels];
    unroll<Panels>([&](auto i) __attribute__((always_inline)) {
      constexpr int kP = decltype(i)::value;
      chunk_scales[kP] = load_chunk_scales<F>(headers + kP * header_bytes<F>(k_blocks) +
                                              first / kBlocksPerChunk * F::kHeaderBytes);
    });
    const uint8_t* pair = chunk.pairs;
    size_t group = row * k_blocks + first;
    for (uint32_t b = 0; b < chunk.blocks; b += 2, pair += F::kPairBytes, group += 2) {
      if constexpr (M >= kPrefetchFromRows<F>) prefetch_ahead<F::kPairBytes>(pair);
      unroll<Panels>([&](auto i) __attribute__((always_inline)) {
        constexpr int kP = decltype(i)::value;
        const uint8_t* scales = pair + kP * panel_bytes;
        rows_block<F, M>(scales + 2 * F::kScaleBytes, scales, chunk_scales[kP], x, group, k_blocks, acc[kP]);
      });
      if (b + 1 == chunk.blocks) break;
      unroll<Panels>([&](auto i) __attribute__((always_inline)) {
        constexpr int kP = decltype(i)::value;
        const uint8_t* scales = pair + kP * panel_bytes + F::kScaleBytes;
        rows_block<F, M>(scales + F::kScaleBytes + F::kCodeBytes, scales, chunk_scales[kP], x, group + 1,
                         k_blocks, acc[kP]);
      });
    }
  }
  unroll<Panels * M>([&](auto i) __attribute__((always_inline)) {
    constexpr int kI = decltype(i)::value;
    finish(a, p + kI / M, row + kI % M, acc[kI / M][kI % M]);
  });
}

}  // namespace
}  // namespace kvasir::avx512
