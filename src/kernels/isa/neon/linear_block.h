#pragma once

#include <arm_neon.h>

#include <cstdint>
#include <utility>

#include "kernels/quant/format.h"

// Packed blocks in NEON registers, half a panel (8 outputs) at a time. Everything here has internal linkage
// and is inlined, so that no function built for this instruction set can stand in for one of another file.
namespace kvasir::neon {
namespace {

using namespace quant;

inline constexpr uint32_t kHalfCols = kPanelCols / 2;

// fn(integral_constant<int, 0>) ... fn(integral_constant<int, N - 1>), written out.
template <int N, class Fn>
[[gnu::always_inline]] inline void unroll(const Fn& fn) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (fn(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

// One value for each output of half a panel.
struct F32x8 {
  float32x4_t lo, hi;
};
struct I32x8 {
  int32x4_t lo, hi;
};
// One quad of half a panel: bytes 4 c .. 4 c + 3 belong to output c.
struct Quad {
  int8x16_t lo, hi;
};

[[gnu::always_inline]] inline F32x8 broadcast(float f) {
  return {vdupq_n_f32(f), vdupq_n_f32(f)};
}
[[gnu::always_inline]] inline I32x8 broadcast(int32_t i) {
  return {vdupq_n_s32(i), vdupq_n_s32(i)};
}
[[gnu::always_inline]] inline F32x8 load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4)};
}
[[gnu::always_inline]] inline void store(float* p, F32x8 v) {
  vst1q_f32(p, v.lo);
  vst1q_f32(p + 4, v.hi);
}
[[gnu::always_inline]] inline F32x8 to_float(I32x8 v) {
  return {vcvtq_f32_s32(v.lo), vcvtq_f32_s32(v.hi)};
}
[[gnu::always_inline]] inline F32x8 add(F32x8 a, F32x8 b) {
  return {vaddq_f32(a.lo, b.lo), vaddq_f32(a.hi, b.hi)};
}
[[gnu::always_inline]] inline F32x8 mul(F32x8 a, F32x8 b) {
  return {vmulq_f32(a.lo, b.lo), vmulq_f32(a.hi, b.hi)};
}
// a * b + c and c - a * b, rounded once.
[[gnu::always_inline]] inline F32x8 fma(F32x8 a, F32x8 b, F32x8 c) {
  return {vfmaq_f32(c.lo, a.lo, b.lo), vfmaq_f32(c.hi, a.hi, b.hi)};
}
[[gnu::always_inline]] inline F32x8 fnma(F32x8 a, F32x8 b, F32x8 c) {
  return {vfmsq_f32(c.lo, a.lo, b.lo), vfmsq_f32(c.hi, a.hi, b.hi)};
}
[[gnu::always_inline]] inline F32x8 negate(F32x8 v) {
  return {vnegq_f32(v.lo), vnegq_f32(v.hi)};
}

// SDOT multiplies signed bytes. Codes with a zero point of 128 are taken less it; all others are below 128.
// Sums are the same integers.
template <class F>
inline constexpr bool kSignedCodes = F::kZero == 128;
static_assert(kMxfp4Codes[7] < 128);

template <int From, int To>
[[gnu::always_inline]] inline uint8x16_t move_bits(uint8x16_t v) {
  if constexpr (To > From)
    return vshlq_n_u8(v, To - From);
  else if constexpr (To < From)
    return vshrq_n_u8(v, From - To);
  else
    return v;
}

// The field of `Width` bits at bit `From` of every byte, at bit `To`.
template <int From, int Width, int To>
[[gnu::always_inline]] inline uint8x16_t bit_field(const uint8_t* p) {
  return vandq_u8(move_bits<From, To>(vld1q_u8(p)), vdupq_n_u8(((1 << Width) - 1) << To));
}

// Quad `I` of outputs 4 * Vector .. of a block: codes as signed bytes.
template <class F, int I, int Vector>
[[gnu::always_inline]] inline int8x16_t unpack_vector(const uint8_t* packed) {
  const uint8_t* p = packed + Vector * 16;
  uint8x16_t w;
  if constexpr (F::kBits == 8) {
    w = vld1q_u8(p + I * kQuadBytes);
  } else if constexpr (F::kBits >= 4) {
    w = bit_field<I / 4 * 4, 4, 0>(p + I % 4 * kQuadBytes);
  } else {
    w = bit_field<I % 4 * 2, 2, 0>(p + I / 4 * kQuadBytes);
  }
  if constexpr (F::kBits == 5) w = vorrq_u8(w, bit_field<I, 1, 4>(p + 4 * kQuadBytes));
  if constexpr (F::kBits == 3) w = vorrq_u8(w, bit_field<I, 1, 2>(p + 2 * kQuadBytes));
  if constexpr (F::kBits == 6) w = vorrq_u8(w, bit_field<I % 4 * 2, 2, 4>(p + (4 + I / 4) * kQuadBytes));
  if constexpr (F::kCodebook != Codebook::kNone)
    w = vqtbl1q_u8(vld1q_u8(F::kCodebook == Codebook::kIq4Nl ? kIq4NlCodes : kMxfp4Codes), w);
  if constexpr (kSignedCodes<F>) w = veorq_u8(w, vdupq_n_u8(0x80));
  return vreinterpretq_s8_u8(w);
}

template <class F, int I, int Half>
[[gnu::always_inline]] inline Quad unpack_quad(const uint8_t* packed) {
  return {unpack_vector<F, I, 2 * Half>(packed), unpack_vector<F, I, 2 * Half + 1>(packed)};
}

[[gnu::always_inline]] inline F32x8 load_halves(const uint8_t* p) {
  const float16x8_t halves = vreinterpretq_f16_u8(vld1q_u8(p));
  return {vcvt_f32_f16(vget_low_f16(halves)), vcvt_high_f32_f16(halves)};
}

// Scales and minimums of half a block; a minimum has the sign it is added with.
template <class F>
struct HalfScales {
  F32x8 d[F::kGroups];
  F32x8 m[F::kGroups];
};

template <class F>
[[gnu::always_inline]] inline F32x8 sub_scale(uint8x8_t bytes, const uint8_t* halves) {
  I32x8 wide;
  if constexpr (F::kScale == ScaleKind::kSubS8) {
    const int16x8_t words = vmovl_s8(vreinterpret_s8_u8(bytes));
    wide = {vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words)};
  } else {
    const int16x8_t words = vreinterpretq_s16_u16(vmovl_u8(bytes));
    wide = {vmovl_s16(vget_low_s16(words)), vmovl_high_s16(words)};
  }
  return mul(load_halves(halves), to_float(wide));
}

// 2^(e - 128), subnormal for e < 2.
[[gnu::always_inline]] inline float32x4_t e8m0_half(uint32x4_t e) {
  const uint32x4_t normal = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
  const uint32x4_t subnormal = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
  return vreinterpretq_f32_u32(vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), subnormal, normal));
}

template <class F, int Half>
[[gnu::always_inline]] inline HalfScales<F> load_scales(const Chunk<F>& chunk, uint32_t b) {
  const uint8_t* s = chunk.scales(b);
  HalfScales<F> out;
  if constexpr (F::kScale == ScaleKind::kHalf) {
    out.d[0] = load_halves(s + 16 * Half);
    if constexpr (F::kHasMin) out.m[0] = load_halves(s + 32 + 16 * Half);
  } else if constexpr (F::kScale == ScaleKind::kE8M0) {
    const uint16x8_t words = vmovl_u8(vld1_u8(s + 8 * Half));
    out.d[0] = {e8m0_half(vmovl_u16(vget_low_u16(words))), e8m0_half(vmovl_high_u16(words))};
  } else {
    const uint8_t* d = chunk.header + 16 * Half;
    unroll<F::kGroups>([&](auto i) __attribute__((always_inline)) {
      constexpr int kG = decltype(i)::value;
      const uint8x8_t sub = vld1_u8(s + 16 * kG + 8 * Half);
      if constexpr (F::kScale == ScaleKind::kNibbles) {
        out.d[kG] = sub_scale<F>(vand_u8(sub, vdup_n_u8(15)), d);
        out.m[kG] = sub_scale<F>(vshr_n_u8(sub, 4), d + 32);
      } else {
        out.d[kG] = sub_scale<F>(sub, d);
        if constexpr (F::kHasMin)
          out.m[kG] = sub_scale<F>(vld1_u8(s + 16 * (F::kGroups + kG) + 8 * Half), d + 32);
      }
      if constexpr (F::kMin == MinKind::kSubtract) out.m[kG] = negate(out.m[kG]);
    });
  }
  return out;
}

}  // namespace
}  // namespace kvasir::neon
