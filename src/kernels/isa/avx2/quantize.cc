#include <immintrin.h>

#include "kernels/generic/quantize_loop.h"
#include "kernels/isa/linear_functions.h"

namespace kvasir::avx2 {
namespace {

[[gnu::always_inline]] inline int32_t sum_lanes(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  return _mm_cvtsi128_si32(_mm_add_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

// The largest magnitude's bits, compared as integers so that a NaN wins.
[[gnu::always_inline]] inline __m128 largest_magnitude(const __m256 (&v)[4]) {
  const __m256i mask = _mm256_set1_epi32(0x7FFFFFFF);
  __m256i m = _mm256_setzero_si256();
  for (int i = 0; i < 4; ++i) m = _mm256_max_epi32(m, _mm256_and_si256(_mm256_castps_si256(v[i]), mask));
  __m128i s = _mm_max_epi32(_mm256_castsi256_si128(m), _mm256_extracti128_si256(m, 1));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4E));
  return _mm_castsi128_ps(_mm_max_epi32(s, _mm_shuffle_epi32(s, 0xB1)));
}

// One group of 32, as scalar::quantize_rows defines it.
[[gnu::always_inline]] inline void quantize_group(const float* x, int8_t* q, float* d_out, float* ds,
                                                  int32_t* nsum, int32_t* nsum16) {
  const __m256 v[4] = {_mm256_loadu_ps(x), _mm256_loadu_ps(x + 8), _mm256_loadu_ps(x + 16),
                       _mm256_loadu_ps(x + 24)};
  const __m128 d = _mm_div_ss(largest_magnitude(v), _mm_set_ss(127.0f));
  // d is normal, as one unsigned comparison of its bits.
  const uint32_t d_bits = static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_castps_si128(d)));
  const __m256i usable = _mm256_set1_epi32(d_bits - 0x00800000u < 0x7F800000u - 0x00800000u ? -1 : 0);
  const __m256 inverse = _mm256_broadcastss_ps(_mm_div_ss(_mm_set_ss(1.0f), d));
  __m256i value[4];
  for (int i = 0; i < 4; ++i)
    value[i] = _mm256_and_si256(_mm256_cvtps_epi32(_mm256_mul_ps(v[i], inverse)), usable);
  // Packing works within 128-bit halves: groups of four bytes come out as 0 2 4 6 1 3 5 7.
  const __m256i bytes =
      _mm256_packs_epi16(_mm256_packs_epi32(value[0], value[1]), _mm256_packs_epi32(value[2], value[3]));
  const __m256i order = _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(q), _mm256_permutevar8x32_epi32(bytes, order));
  const int32_t sums[2] = {sum_lanes(_mm256_add_epi32(value[0], value[1])),
                           sum_lanes(_mm256_add_epi32(value[2], value[3]))};
  *d_out = _mm_cvtss_f32(d);
  *ds = _mm_cvtss_f32(d) * static_cast<float>(sums[0] + sums[1]);
  *nsum = -(sums[0] + sums[1]);
  nsum16[0] = -sums[0];
  nsum16[1] = -sums[1];
}

}  // namespace

void quantize_rows(const float* x, size_t ldx, uint32_t rows, uint32_t k, const QuantRows& out,
                   uint32_t first_row) {
  quantize_groupwise(x, ldx, rows, k, out, first_row, quantize_group);
}

}  // namespace kvasir::avx2
