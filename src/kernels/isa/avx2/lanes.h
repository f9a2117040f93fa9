#pragma once

#include <immintrin.h>

#include <cstdint>

#include "kernels/inline.h"
#include "kernels/isa/all_lanes.h"
#include "kernels/isa/x86_reduce.h"

namespace kvasir::avx2 {

// A choice of lanes: all bits of a chosen lane are set.
struct Mask16 {
  __m256i lo, hi;

  // Lanes begin <= i < end; the bounds may lie outside 0..16.
  KVASIR_INLINE static Mask16 between(int begin, int end) {
    const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
    const __m256i before = _mm256_set1_epi32(begin - 1);
    const __m256i after = _mm256_set1_epi32(end);
    return {_mm256_and_si256(_mm256_cmpgt_epi32(low, before), _mm256_cmpgt_epi32(after, low)),
            _mm256_and_si256(_mm256_cmpgt_epi32(high, before), _mm256_cmpgt_epi32(after, high))};
  }
  // The first n lanes, 0 <= n <= 16.
  KVASIR_INLINE static Mask16 first(int n) { return between(0, n); }
  // Lowest chosen lane, or 16.
  KVASIR_INLINE int lowest() const {
    const int low = _mm256_movemask_ps(_mm256_castsi256_ps(lo));
    const int bits = low | _mm256_movemask_ps(_mm256_castsi256_ps(hi)) << 8;
    return bits == 0 ? 16 : __builtin_ctz(static_cast<unsigned>(bits));
  }
};

// Sixteen floats in two registers.
struct F32x16 {
  using Mask = Mask16;
  // Attention's micro-kernels: at most so many rows share a pass over K and V, and so many vectors of each
  // row (two registers each) are kept in registers: 6 rows x 1 of 16.
  static constexpr int kTileRows = 6;
  static constexpr int kTileVectors = 1;
  // Of latent attention: so many positions or columns of sixteen rows at once, two registers each.
  static constexpr int kLatentStep = 4;

  __m256 lo, hi;

  KVASIR_INLINE static F32x16 broadcast(float f) { return {_mm256_set1_ps(f), _mm256_set1_ps(f)}; }
  KVASIR_INLINE static F32x16 load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
  KVASIR_INLINE static F32x16 load(const float* p, AllLanes, float) { return load(p); }
  // Lanes outside the mask are not read and become `fill`.
  KVASIR_INLINE static F32x16 load(const float* p, Mask16 m, float fill) {
    const __m256 f = _mm256_set1_ps(fill);
    return {_mm256_blendv_ps(f, _mm256_maskload_ps(p, m.lo), _mm256_castsi256_ps(m.lo)),
            _mm256_blendv_ps(f, _mm256_maskload_ps(p + 8, m.hi), _mm256_castsi256_ps(m.hi))};
  }
  KVASIR_INLINE static F32x16 load_half(const uint16_t* p) {
    const auto* halves = reinterpret_cast<const __m128i*>(p);
    return {_mm256_cvtph_ps(_mm_loadu_si128(halves)), _mm256_cvtph_ps(_mm_loadu_si128(halves + 1))};
  }
  KVASIR_INLINE static F32x16 load_int8(const int8_t* p) {
    const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
  }
  KVASIR_INLINE void store(float* p) const {
    _mm256_storeu_ps(p, lo);
    _mm256_storeu_ps(p + 8, hi);
  }
  KVASIR_INLINE void store(float* p, AllLanes) const { store(p); }
  KVASIR_INLINE void store(float* p, Mask16 m) const {
    _mm256_maskstore_ps(p, m.lo, lo);
    _mm256_maskstore_ps(p + 8, m.hi, hi);
  }
  KVASIR_INLINE void store_half(uint16_t* p) const {
    auto* halves = reinterpret_cast<__m128i*>(p);
    _mm_storeu_si128(halves, _mm256_cvtps_ph(lo, _MM_FROUND_TO_NEAREST_INT));
    _mm_storeu_si128(halves + 1, _mm256_cvtps_ph(hi, _MM_FROUND_TO_NEAREST_INT));
  }
  // Rounded to nearest even; within -128 .. 127.
  KVASIR_INLINE void store_int8(int8_t* p) const {
    const __m256i words = _mm256_permute4x64_epi64(
        _mm256_packs_epi32(_mm256_cvtps_epi32(lo), _mm256_cvtps_epi32(hi)), _MM_SHUFFLE(3, 1, 2, 0));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                     _mm_packs_epi16(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1)));
  }
};

KVASIR_INLINE F32x16 operator+(F32x16 a, F32x16 b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}
KVASIR_INLINE F32x16 operator-(F32x16 a, F32x16 b) {
  return {_mm256_sub_ps(a.lo, b.lo), _mm256_sub_ps(a.hi, b.hi)};
}
KVASIR_INLINE F32x16 operator*(F32x16 a, F32x16 b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
KVASIR_INLINE F32x16 operator/(F32x16 a, F32x16 b) {
  return {_mm256_div_ps(a.lo, b.lo), _mm256_div_ps(a.hi, b.hi)};
}
KVASIR_INLINE F32x16 fma(F32x16 a, F32x16 b, F32x16 c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
KVASIR_INLINE F32x16 negate(F32x16 a) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_xor_ps(a.lo, bit), _mm256_xor_ps(a.hi, bit)};
}
KVASIR_INLINE F32x16 abs(F32x16 a) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(bit, a.lo), _mm256_andnot_ps(bit, a.hi)};
}
KVASIR_INLINE F32x16 copy_sign(F32x16 magnitude, F32x16 sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.lo), _mm256_and_ps(bit, sign.lo)),
          _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.hi), _mm256_and_ps(bit, sign.hi))};
}
KVASIR_INLINE F32x16 select_less(F32x16 a, F32x16 b, F32x16 x, F32x16 y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_cmp_ps(a.lo, b.lo, _CMP_LT_OQ)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_cmp_ps(a.hi, b.hi, _CMP_LT_OQ))};
}
KVASIR_INLINE F32x16 select(Mask16 m, F32x16 x, F32x16 y) {
  return {_mm256_blendv_ps(y.lo, x.lo, _mm256_castsi256_ps(m.lo)),
          _mm256_blendv_ps(y.hi, x.hi, _mm256_castsi256_ps(m.hi))};
}
KVASIR_INLINE Mask16 equal(F32x16 a, F32x16 b) {
  return {_mm256_castps_si256(_mm256_cmp_ps(a.lo, b.lo, _CMP_EQ_OQ)),
          _mm256_castps_si256(_mm256_cmp_ps(a.hi, b.hi, _CMP_EQ_OQ))};
}
// a > b ? a : b, so that a NaN in a loses.
KVASIR_INLINE F32x16 max(F32x16 a, F32x16 b) {
  return {_mm256_max_ps(a.lo, b.lo), _mm256_max_ps(a.hi, b.hi)};
}
KVASIR_INLINE F32x16 exponent_bits(F32x16 a) {
  return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.lo), 23)),
          _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_castps_si256(a.hi), 23))};
}

KVASIR_INLINE __m256 low_half(F32x16 a) {
  return a.lo;
}
KVASIR_INLINE __m256 high_half(F32x16 a) {
  return a.hi;
}

// Even and odd elements of a then b; and the way back.
KVASIR_INLINE __m256 join_pairs(__m256 v) {
  return _mm256_castpd_ps(_mm256_permute4x64_pd(_mm256_castps_pd(v), _MM_SHUFFLE(3, 1, 2, 0)));
}
KVASIR_INLINE void deinterleave(F32x16 a, F32x16 b, F32x16& even, F32x16& odd) {
  even = {join_pairs(_mm256_shuffle_ps(a.lo, a.hi, _MM_SHUFFLE(2, 0, 2, 0))),
          join_pairs(_mm256_shuffle_ps(b.lo, b.hi, _MM_SHUFFLE(2, 0, 2, 0)))};
  odd = {join_pairs(_mm256_shuffle_ps(a.lo, a.hi, _MM_SHUFFLE(3, 1, 3, 1))),
         join_pairs(_mm256_shuffle_ps(b.lo, b.hi, _MM_SHUFFLE(3, 1, 3, 1)))};
}
KVASIR_INLINE F32x16 interleave_half(__m256 even, __m256 odd) {
  const __m256 low = _mm256_unpacklo_ps(even, odd);
  const __m256 high = _mm256_unpackhi_ps(even, odd);
  return {_mm256_permute2f128_ps(low, high, 0x20), _mm256_permute2f128_ps(low, high, 0x31)};
}
KVASIR_INLINE void interleave(F32x16 even, F32x16 odd, F32x16& a, F32x16& b) {
  a = interleave_half(even.lo, odd.lo);
  b = interleave_half(even.hi, odd.hi);
}

using x86::first_lane;
using x86::reduce_max;
using x86::tree_sum;

}  // namespace kvasir::avx2
