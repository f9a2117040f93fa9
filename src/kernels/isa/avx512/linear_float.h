#pragma once

#include "kernels/isa/avx512/linear_rows.h"

// F32, F16 and BF16 weights: lanes along outputs, four partial sums over the inputs k mod 4.
namespace kvasir::avx512 {
namespace {

template <DType Type>
[[gnu::always_inline]] inline __m512 load_weights(const uint8_t* panel, size_t input) {
  if constexpr (Type == DType::kF32) {
    return _mm512_loadu_ps(reinterpret_cast<const float*>(panel) + input * kPanelCols);
  } else {
    const uint8_t* p = panel + input * kPanelCols * 2;
    if constexpr (Type == DType::kF16) return load_halves(p);
    const __m512i wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
    return _mm512_castsi512_ps(_mm512_slli_epi32(wide, 16));
  }
}

template <DType Type, int M>
[[gnu::noinline]] void float_rows(const LinearArgs& a, uint32_t p, uint32_t row) {
  const size_t k = a.w->k;
  const uint8_t* panel = reinterpret_cast<const uint8_t*>(a.w->data) + p * a.w->panel_bytes;
  const float* x = a.xf + row * k;
  __m512 sums[M][4];
  unroll<M * 4>([&](auto i) __attribute__((always_inline)) {
    sums[decltype(i)::value / 4][decltype(i)::value % 4] = _mm512_setzero_ps();
  });
  const auto step = [&](size_t input, auto lane) __attribute__((always_inline)) {
    constexpr int kLane = decltype(lane)::value;
    const __m512 w = load_weights<Type>(panel, input);
    unroll<M>([&](auto r) __attribute__((always_inline)) {
      constexpr int kR = decltype(r)::value;
      sums[kR][kLane] = _mm512_fmadd_ps(_mm512_set1_ps(x[kR * k + input]), w, sums[kR][kLane]);
    });
  };
  size_t input = 0;
  for (; input + 4 <= k; input += 4) {
    constexpr size_t kBytes = 4 * kPanelCols * (Type == DType::kF32 ? 4 : 2);
    if constexpr (M >= 5) prefetch_ahead<kBytes>(panel + input / 4 * kBytes);
    unroll<4>([&](auto lane) __attribute__((always_inline)) { step(input + decltype(lane)::value, lane); });
  }
  unroll<3>([&](auto lane) __attribute__((always_inline)) {
    if (input + decltype(lane)::value < k) step(input + decltype(lane)::value, lane);
  });
  unroll<M>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    const __m512 low = _mm512_add_ps(sums[kR][0], sums[kR][1]);
    finish(a, p, row + kR, _mm512_add_ps(low, _mm512_add_ps(sums[kR][2], sums[kR][3])));
  });
}

template <DType Type>
void float_linear(const LinearArgs& a) {
  for (uint32_t p = a.panel_begin; p < a.panel_end; ++p) {
    uint32_t row = 0;
    for (; row + 6 <= a.rows; row += 6) float_rows<Type, 6>(a, p, row);
    switch (a.rows - row) {
      case 1:
        float_rows<Type, 1>(a, p, row);
        break;
      case 2:
        float_rows<Type, 2>(a, p, row);
        break;
      case 3:
        float_rows<Type, 3>(a, p, row);
        break;
      case 4:
        float_rows<Type, 4>(a, p, row);
        break;
      case 5:
        float_rows<Type, 5>(a, p, row);
        break;
      default:
        break;
    }
  }
}

}  // namespace
}  // namespace kvasir::avx512
