#pragma once

#include "kernels/isa/avx2/linear_tile.h"

// F32, F16 and BF16 weights: lanes along outputs, four partial sums over the inputs k mod 4.
namespace kvasir::avx2 {
namespace {

template <DType Type>
[[gnu::always_inline]] inline __m256 load_weights(const uint8_t* panel, size_t input, uint32_t half) {
  const size_t at = input * kPanelCols + half * kHalfCols;
  if constexpr (Type == DType::kF32) return _mm256_loadu_ps(reinterpret_cast<const float*>(panel) + at);
  if constexpr (Type == DType::kF16) return load_halves(panel + 2 * at);
  const __m128i narrow = _mm_loadu_si128(reinterpret_cast<const __m128i*>(panel + 2 * at));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(narrow), 16));
}

// Rows [row, row + Rows) of half a panel.
template <DType Type, int Rows>
[[gnu::noinline]] void float_rows(const LinearArgs& a, uint32_t p, uint32_t half, uint32_t row) {
  const size_t k = a.w->k;
  const uint8_t* panel = panel_of(*a.w, p);
  const float* x = a.xf + row * k;
  __m256 sums[Rows][4];
  unroll<Rows * 4>([&](auto i) __attribute__((always_inline)) {
    sums[decltype(i)::value / 4][decltype(i)::value % 4] = _mm256_setzero_ps();
  });
  const auto step = [&](size_t input, auto lane) __attribute__((always_inline)) {
    constexpr int kLane = decltype(lane)::value;
    const __m256 w = load_weights<Type>(panel, input, half);
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      constexpr int kR = decltype(r)::value;
      sums[kR][kLane] = _mm256_fmadd_ps(_mm256_set1_ps(x[kR * k + input]), w, sums[kR][kLane]);
    });
  };
  size_t input = 0;
  for (; input + 4 <= k; input += 4)
    unroll<4>([&](auto lane) __attribute__((always_inline)) { step(input + decltype(lane)::value, lane); });
  unroll<3>([&](auto lane) __attribute__((always_inline)) {
    if (input + decltype(lane)::value < k) step(input + decltype(lane)::value, lane);
  });
  unroll<Rows>([&](auto r) __attribute__((always_inline)) {
    constexpr int kR = decltype(r)::value;
    const __m256 low = _mm256_add_ps(sums[kR][0], sums[kR][1]);
    finish(a, p, half, row + kR, _mm256_add_ps(low, _mm256_add_ps(sums[kR][2], sums[kR][3])));
  });
}

template <DType Type>
void float_linear(const LinearArgs& a) {
  for (uint32_t p = a.panel_begin; p < a.panel_end; ++p)
    for (uint32_t half = 0; half < 2; ++half) {
      uint32_t row = 0;
      for (; row + 3 <= a.rows; row += 3) float_rows<Type, 3>(a, p, half, row);
      if (a.rows - row == 2) float_rows<Type, 2>(a, p, half, row);
      if (a.rows - row == 1) float_rows<Type, 1>(a, p, half, row);
    }
}

}  // namespace
}  // namespace kvasir::avx2
