#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/inline.h"
#include "kernels/isa/all_lanes.h"
#include "kernels/isa/x86_reduce.h"

namespace kvasir::avx512 {

// A choice of lanes.
struct Mask16 {
  __mmask16 bits;

  // The first n lanes, 0 <= n <= 16.
  KVASIR_INLINE static Mask16 first(int n) { return {static_cast<__mmask16>((1u << n) - 1u)}; }
  // Lanes begin <= i < end; the bounds may lie outside 0..16.
  KVASIR_INLINE static Mask16 between(int begin, int end) {
    const uint32_t below_end = end >= 16 ? 0xffffu : (end <= 0 ? 0u : (1u << end) - 1u);
    const uint32_t below_begin = begin >= 16 ? 0xffffu : (begin <= 0 ? 0u : (1u << begin) - 1u);
    return {static_cast<__mmask16>(below_end & ~below_begin)};
  }
  // Lowest chosen lane, or 16.
  KVASIR_INLINE int lowest() const { return bits == 0 ? 16 : __builtin_ctz(bits); }
};

// Sixteen floats.
struct F32x16 {
  using Mask = Mask16;
  // Attention's micro-kernels: at most so many rows share a pass over K and V, and so many vectors of each
  // row are kept in registers: 7 rows x 4 of 32, the four of K or V beside them.
  static constexpr int kTileRows = 7;
  static constexpr int kTileVectors = 4;
  // Of latent attention: so many positions or columns of sixteen rows at once, a register each.
  static constexpr int kLatentStep = 16;

  __m512 v;

  KVASIR_INLINE static F32x16 broadcast(float f) { return {_mm512_set1_ps(f)}; }
  KVASIR_INLINE static F32x16 load(const float* p) { return {_mm512_loadu_ps(p)}; }
  KVASIR_INLINE static F32x16 load(const float* p, AllLanes, float) { return load(p); }
  // Lanes outside the mask are not read and become `fill`.
  KVASIR_INLINE static F32x16 load(const float* p, Mask16 m, float fill) {
    return {_mm512_mask_loadu_ps(_mm512_set1_ps(fill), m.bits, p)};
  }
  KVASIR_INLINE static F32x16 load_half(const uint16_t* p) {
    return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
  }
  KVASIR_INLINE static F32x16 load_int8(const int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
  }
  KVASIR_INLINE void store(float* p) const { _mm512_storeu_ps(p, v); }
  KVASIR_INLINE void store(float* p, AllLanes) const { store(p); }
  KVASIR_INLINE void store(float* p, Mask16 m) const { _mm512_mask_storeu_ps(p, m.bits, v); }
  KVASIR_INLINE void store_half(uint16_t* p) const {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
  }
  // Rounded to nearest even; within -128 .. 127.
  KVASIR_INLINE void store_int8(int8_t* p) const {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtepi32_epi8(_mm512_cvtps_epi32(v)));
  }
};

KVASIR_INLINE F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm512_add_ps(a.v, b.v)};
}
KVASIR_INLINE F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm512_sub_ps(a.v, b.v)};
}
KVASIR_INLINE F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm512_mul_ps(a.v, b.v)};
}
KVASIR_INLINE F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm512_div_ps(a.v, b.v)};
}
KVASIR_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm512_fmadd_ps(a.v, b.v, c.v)};
}
KVASIR_INLINE F32x16 negate(F32x16 a) {
  return {_mm512_xor_ps(a.v, _mm512_set1_ps(-0.0f))};
}
KVASIR_INLINE F32x16 abs(F32x16 a) {
  return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)};
}
KVASIR_INLINE F32x16 copy_sign(F32x16 magnitude, F32x16 sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, magnitude.v), _mm512_and_ps(bit, sign.v))};
}
KVASIR_INLINE F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), y.v, x.v)};
}
KVASIR_INLINE F32x16 select(Mask16 m, F32x16 x, F32x16 y) {
  return {_mm512_mask_blend_ps(m.bits, y.v, x.v)};
}
KVASIR_INLINE Mask16 equal(F32x16 a, F32x16 b) {
  return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_EQ_OQ)};
}
// a > b ? a : b, so that a NaN in a loses.
KVASIR_INLINE F32x16 max(F32x16 a, F32x16 b) {
  return {_mm512_max_ps(a.v, b.v)};
}
KVASIR_INLINE F32x16 exponent_bits(F32x16 a) {
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(a.v), 23))};
}

KVASIR_INLINE __m256 low_half(F32x16 a) {
  return _mm512_castps512_ps256(a.v);
}
KVASIR_INLINE __m256 high_half(F32x16 a) {
  return _mm512_extractf32x8_ps(a.v, 1);
}

// Even and odd elements of a then b; and the way back.
KVASIR_INLINE void deinterleave(F32x16 a, F32x16 b, F32x16& even, F32x16& odd) {
  const __m512i e = _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
  even = {_mm512_permutex2var_ps(a.v, e, b.v)};
  odd = {_mm512_permutex2var_ps(a.v, _mm512_add_epi32(e, _mm512_set1_epi32(1)), b.v)};
}
KVASIR_INLINE void interleave(F32x16 even, F32x16 odd, F32x16& a, F32x16& b) {
  const __m512i i = _mm512_setr_epi32(0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
  a = {_mm512_permutex2var_ps(even.v, i, odd.v)};
  b = {_mm512_permutex2var_ps(even.v, _mm512_add_epi32(i, _mm512_set1_epi32(8)), odd.v)};
}

using x86::first_lane;
using x86::reduce_max;
using x86::tree_sum;

}  // namespace kvasir::avx512
