#pragma once

#include <immintrin.h>

#include "kernels/inline.h"

// Reductions over sixteen lanes for the instruction sets of x86: each one's lanes.h takes them into its own
// namespace. Templates over V, so that each instruction set has its own copy.
namespace kvasir::x86 {

// The fixed tree of generic/reduce.h: (i, i + 8), then (i, i + 4), (i, i + 2), (0, 1).
template <class V>
KVASIR_INLINE float tree_sum(V a) {
  const __m256 s8 = _mm256_add_ps(low_half(a), high_half(a));
  const __m128 s4 = _mm_add_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_add_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_add_ss(s2, _mm_movehdup_ps(s2)));
}

// The largest lane, if none is NaN.
template <class V>
KVASIR_INLINE float reduce_max(V a) {
  const __m256 s8 = _mm256_max_ps(low_half(a), high_half(a));
  const __m128 s4 = _mm_max_ps(_mm256_castps256_ps128(s8), _mm256_extractf128_ps(s8, 1));
  const __m128 s2 = _mm_max_ps(s4, _mm_movehl_ps(s4, s4));
  return _mm_cvtss_f32(_mm_max_ss(s2, _mm_movehdup_ps(s2)));
}

template <class V>
KVASIR_INLINE float first_lane(V a) {
  return _mm256_cvtss_f32(low_half(a));
}

}  // namespace kvasir::x86
