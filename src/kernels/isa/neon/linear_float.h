#pragma once

#include "kernels/isa/neon/linear_tile.h"

// F32, F16 and BF16 weights: lanes along outputs, four partial sums over the inputs k mod 4.
namespace kvasir::neon {
namespace {

template <DType Type>
[[gnu::always_inline]] inline F32x8 load_weights(const uint8_t* panel, size_t input, uint32_t half) {
  const size_t at = input * kPanelCols + half * kHalfCols;
  if constexpr (Type == DType::kF32) return load(reinterpret_cast<const float*>(panel) + at);
  if constexpr (Type == DType::kF16) return load_halves(panel + 2 * at);
  const uint16x8_t narrow = vreinterpretq_u16_u8(vld1q_u8(panel + 2 * at));
  return {vreinterpretq_f32_u32(vshll_n_u16(vget_low_u16(narrow), 16)),
          vreinterpretq_f32_u32(vshll_high_n_u16(narrow, 16))};
}

// Rows [row, row + Rows) of half a panel.
template <DType Type, int Rows>
[[gnu::noinline]] void float_rows(const LinearArgs& a, uint32_t p, uint32_t half, uint32_t row) {
  const size_t k = a.w->k;
  const uint8_t* panel = panel_of(*a.w, p);
  const float* x = a.xf + row * k;
  F32x8 sums[Rows][4];
  unroll<Rows * 4>([&](auto i) __attribute__((always_inline)) {
    sums[decltype(i)::value / 4][decltype(i)::value % 4] = broadcast(0.0f);
  });
  const auto step = [&](size_t input, auto lane) __attribute__((always_inline)) {
    constexpr int kLane = decltype(lane)::value;
    const F32x8 w = load_weights<Type>(panel, input, half);
    unroll<Rows>([&](auto r) __attribute__((always_inline)) {
      constexpr int kR = decltype(r)::value;
      sums[kR][kLane] = fma(broadcast(x[kR * k + input]), w, sums[kR][kLane]);
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
    const F32x8 low = add(sums[kR][0], sums[kR][1]);
    finish(a, p, half, row + kR, add(low, add(sums[kR][2], sums[kR][3])));
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
}  // namespace kvasir::neon
