#pragma once

#include <arm_neon.h>

#include <cstdint>

#include "kernels/inline.h"
#include "kernels/isa/all_lanes.h"

namespace kvasir::neon {

// A range of lanes: begin <= i < end, within 0..16.
struct Mask16 {
  int begin, end;

  // Lanes begin <= i < end; the bounds may lie outside 0..16.
  KVASIR_INLINE static Mask16 between(int begin, int end) {
    begin = begin < 0 ? 0 : begin;
    end = end > 16 ? 16 : end;
    return {begin, end};
  }
  // The first n lanes, 0 <= n <= 16.
  KVASIR_INLINE static Mask16 first(int n) { return {0, n}; }
  KVASIR_INLINE bool all() const { return begin == 0 && end == 16; }
};

// A choice of lanes as comparisons make it: all bits of a chosen lane are set.
struct Chosen16 {
  uint32x4_t a, b, c, d;

  // Lowest chosen lane, or 16. Four bits of each lane are left before they are counted.
  KVASIR_INLINE int lowest() const {
    const uint16x8_t low = vcombine_u16(vmovn_u32(a), vmovn_u32(b));
    const uint16x8_t high = vcombine_u16(vmovn_u32(c), vmovn_u32(d));
    const uint8x16_t bytes = vcombine_u8(vmovn_u16(low), vmovn_u16(high));
    const uint64_t bits = vget_lane_u64(vreinterpret_u64_u8(vshrn_n_u16(vreinterpretq_u16_u8(bytes), 4)), 0);
    return bits == 0 ? 16 : __builtin_ctzll(bits) / 4;
  }
};

// Sixteen floats in four registers.
struct F32x16 {
  using Mask = Mask16;
  // Attention's micro-kernels: at most so many rows share a pass over K and V, and so many vectors of each
  // row (four registers each) are kept in registers: 6 rows x 1 of 32.
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 1;
  // Of latent attention: so many positions or columns of sixteen rows at once, four registers each.
  static constexpr int kLatentStep = 4;

  float32x4_t a, b, c, d;

  KVASIR_INLINE static F32x16 broadcast(float f) {
    const float32x4_t v = vdupq_n_f32(f);
    return {v, v, v, v};
  }
  KVASIR_INLINE static F32x16 load(const float* p) {
    return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
  }
  KVASIR_INLINE static F32x16 load(const float* p, AllLanes, float) { return load(p); }
  // Lanes outside the mask are not read and become `fill`.
  KVASIR_INLINE static F32x16 load(const float* p, Mask16 m, float fill) {
    if (m.all()) return load(p);
    float lanes[16];
    broadcast(fill).store(lanes);
    for (int i = m.begin; i < m.end; ++i) lanes[i] = p[i];
    return load(lanes);
  }
  KVASIR_INLINE static F32x16 load_half(const uint16_t* p) {
    const float16x8_t low = vreinterpretq_f16_u16(vld1q_u16(p));
    const float16x8_t high = vreinterpretq_f16_u16(vld1q_u16(p + 8));
    return {vcvt_f32_f16(vget_low_f16(low)), vcvt_high_f32_f16(low), vcvt_f32_f16(vget_low_f16(high)),
            vcvt_high_f32_f16(high)};
  }
  KVASIR_INLINE static F32x16 load_int8(const int8_t* p) {
    const int8x16_t bytes = vld1q_s8(p);
    const int16x8_t low = vmovl_s8(vget_low_s8(bytes)), high = vmovl_high_s8(bytes);
    return {vcvtq_f32_s32(vmovl_s16(vget_low_s16(low))), vcvtq_f32_s32(vmovl_high_s16(low)),
            vcvtq_f32_s32(vmovl_s16(vget_low_s16(high))), vcvtq_f32_s32(vmovl_high_s16(high))};
  }
  KVASIR_INLINE void store(float* p) const {
    vst1q_f32(p, a);
    vst1q_f32(p + 4, b);
    vst1q_f32(p + 8, c);
    vst1q_f32(p + 12, d);
  }
  KVASIR_INLINE void store(float* p, AllLanes) const { store(p); }
  KVASIR_INLINE void store(float* p, Mask16 m) const {
    if (m.all()) return store(p);
    float lanes[16];
    store(lanes);
    for (int i = m.begin; i < m.end; ++i) p[i] = lanes[i];
  }
  // Rounds to nearest even: the rounding that FPCR begins with, and that nothing here changes.
  KVASIR_INLINE void store_half(uint16_t* p) const {
    vst1q_u16(p, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(a), b)));
    vst1q_u16(p + 8, vreinterpretq_u16_f16(vcvt_high_f16_f32(vcvt_f16_f32(c), d)));
  }
  // Rounded to nearest even; within -128 .. 127.
  KVASIR_INLINE void store_int8(int8_t* p) const {
    const int16x8_t low = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(a)), vcvtnq_s32_f32(b));
    const int16x8_t high = vqmovn_high_s32(vqmovn_s32(vcvtnq_s32_f32(c)), vcvtnq_s32_f32(d));
    vst1q_s8(p, vqmovn_high_s16(vqmovn_s16(low), high));
  }
};

KVASIR_INLINE F32x16 operator+(F32x16 x, F32x16 y) {
  return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c), vaddq_f32(x.d, y.d)};
}
KVASIR_INLINE F32x16 operator-(F32x16 x, F32x16 y) {
  return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b), vsubq_f32(x.c, y.c), vsubq_f32(x.d, y.d)};
}
KVASIR_INLINE F32x16 operator*(F32x16 x, F32x16 y) {
  return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)};
}
KVASIR_INLINE F32x16 operator/(F32x16 x, F32x16 y) {
  return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b), vdivq_f32(x.c, y.c), vdivq_f32(x.d, y.d)};
}
KVASIR_INLINE F32x16 fma(F32x16 x, F32x16 y, F32x16 z) {
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
          vfmaq_f32(z.d, x.d, y.d)};
}
KVASIR_INLINE F32x16 negate(F32x16 x) {
  return {vnegq_f32(x.a), vnegq_f32(x.b), vnegq_f32(x.c), vnegq_f32(x.d)};
}
KVASIR_INLINE F32x16 abs(F32x16 x) {
  return {vabsq_f32(x.a), vabsq_f32(x.b), vabsq_f32(x.c), vabsq_f32(x.d)};
}
KVASIR_INLINE F32x16 copy_sign(F32x16 magnitude, F32x16 sign) {
  const uint32x4_t bit = vdupq_n_u32(0x80000000u);
  return {vbslq_f32(bit, sign.a, magnitude.a), vbslq_f32(bit, sign.b, magnitude.b),
          vbslq_f32(bit, sign.c, magnitude.c), vbslq_f32(bit, sign.d, magnitude.d)};
}
KVASIR_INLINE F32x16 select(Chosen16 m, F32x16 x, F32x16 y) {
  return {vbslq_f32(m.a, x.a, y.a), vbslq_f32(m.b, x.b, y.b), vbslq_f32(m.c, x.c, y.c),
          vbslq_f32(m.d, x.d, y.d)};
}
KVASIR_INLINE Chosen16 less(F32x16 x, F32x16 y) {
  return {vcltq_f32(x.a, y.a), vcltq_f32(x.b, y.b), vcltq_f32(x.c, y.c), vcltq_f32(x.d, y.d)};
}
KVASIR_INLINE Chosen16 equal(F32x16 x, F32x16 y) {
  return {vceqq_f32(x.a, y.a), vceqq_f32(x.b, y.b), vceqq_f32(x.c, y.c), vceqq_f32(x.d, y.d)};
}
KVASIR_INLINE F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return select(less(a, b), x, y);
}
KVASIR_INLINE uint32x4_t lanes_between(int32x4_t lanes, Mask16 m) {
  return vandq_u32(vcgeq_s32(lanes, vdupq_n_s32(m.begin)), vcltq_s32(lanes, vdupq_n_s32(m.end)));
}
KVASIR_INLINE F32x16 select(Mask16 m, F32x16 x, F32x16 y) {
  const int32x4_t first = {0, 1, 2, 3};
  const int32x4_t four = vdupq_n_s32(4);
  const int32x4_t second = vaddq_s32(first, four);
  const int32x4_t third = vaddq_s32(second, four);
  const Chosen16 chosen{lanes_between(first, m), lanes_between(second, m), lanes_between(third, m),
                        lanes_between(vaddq_s32(third, four), m)};
  return select(chosen, x, y);
}
// a > b ? a : b, so that a NaN in a loses; FMAX would let it win.
KVASIR_INLINE float32x4_t larger(float32x4_t a, float32x4_t b) {
  return vbslq_f32(vcgtq_f32(a, b), a, b);
}
KVASIR_INLINE F32x16 max(F32x16 x, F32x16 y) {
  return {larger(x.a, y.a), larger(x.b, y.b), larger(x.c, y.c), larger(x.d, y.d)};
}
KVASIR_INLINE float32x4_t exponent_bits(float32x4_t v) {
  return vreinterpretq_f32_u32(vshlq_n_u32(vreinterpretq_u32_f32(v), 23));
}
KVASIR_INLINE F32x16 exponent_bits(F32x16 x) {
  return {exponent_bits(x.a), exponent_bits(x.b), exponent_bits(x.c), exponent_bits(x.d)};
}

// The fixed tree of generic/reduce.h: (i, i + 8), then (i, i + 4), (i, i + 2), (0, 1).
KVASIR_INLINE float tree_sum(F32x16 x) {
  const float32x4_t s4 = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
  const float32x2_t s2 = vadd_f32(vget_low_f32(s4), vget_high_f32(s4));
  return vget_lane_f32(s2, 0) + vget_lane_f32(s2, 1);
}
// The largest lane, if none is NaN.
KVASIR_INLINE float reduce_max(F32x16 x) {
  return vmaxvq_f32(larger(larger(x.a, x.c), larger(x.b, x.d)));
}
KVASIR_INLINE float first_lane(F32x16 x) {
  return vgetq_lane_f32(x.a, 0);
}

// Even and odd elements of a then b; and the way back.
KVASIR_INLINE void deinterleave(F32x16 x, F32x16 y, F32x16& even, F32x16& odd) {
  even = {vuzp1q_f32(x.a, x.b), vuzp1q_f32(x.c, x.d), vuzp1q_f32(y.a, y.b), vuzp1q_f32(y.c, y.d)};
  odd = {vuzp2q_f32(x.a, x.b), vuzp2q_f32(x.c, x.d), vuzp2q_f32(y.a, y.b), vuzp2q_f32(y.c, y.d)};
}
KVASIR_INLINE void interleave(F32x16 even, F32x16 odd, F32x16& x, F32x16& y) {
  x = {vzip1q_f32(even.a, odd.a), vzip2q_f32(even.a, odd.a), vzip1q_f32(even.b, odd.b),
       vzip2q_f32(even.b, odd.b)};
  y = {vzip1q_f32(even.c, odd.c), vzip2q_f32(even.c, odd.c), vzip1q_f32(even.d, odd.d),
       vzip2q_f32(even.d, odd.d)};
}

}  // namespace kvasir::neon
