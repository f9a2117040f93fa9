#include <immintrin.h>

#include "kernels/isa/linear_functions.h"

namespace kvasir::avx512 {
namespace {

// Where the results of consecutive groups go.
struct Groups {
  int8_t* q;
  float* d;
  float* ds;
  int32_t* nsum;
  int32_t* nsum16;
};

[[gnu::always_inline]] inline Groups groups_at(const QuantRows& out, size_t group) {
  return {out.q + group * kGroup, out.d + group, out.ds + group, out.nsum + group, out.nsum16 + 2 * group};
}

// The larger magnitude of each lane, compared as integers so that a NaN wins.
[[gnu::always_inline]] inline __m512i magnitudes(__m512 a, __m512 b) {
  const __m512i mask = _mm512_set1_epi32(0x7FFFFFFF);
  return _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(a), mask),
                          _mm512_and_si512(_mm512_castps_si512(b), mask));
}

// The largest lane of each of four vectors.
[[gnu::always_inline]] inline __m128i largest_of_each(const __m512i (&m)[4]) {
  const __m512i m01 = _mm512_max_epu32(_mm512_unpacklo_epi32(m[0], m[1]), _mm512_unpackhi_epi32(m[0], m[1]));
  const __m512i m23 = _mm512_max_epu32(_mm512_unpacklo_epi32(m[2], m[3]), _mm512_unpackhi_epi32(m[2], m[3]));
  const __m512i all = _mm512_max_epu32(_mm512_unpacklo_epi64(m01, m23), _mm512_unpackhi_epi64(m01, m23));
  const __m256i half = _mm256_max_epu32(_mm512_castsi512_si256(all), _mm512_extracti64x4_epi64(all, 1));
  return _mm_max_epu32(_mm256_castsi256_si128(half), _mm256_extracti128_si256(half, 1));
}

// 64 quantised values: the negated sum of each 16, in order.
[[gnu::always_inline]] inline __m128i negated_sums(__m512i q) {
  const __m512i quads = _mm512_dpbusd_epi32(_mm512_setzero_si512(), _mm512_set1_epi8(1), q);
  const __m512i pairs = _mm512_add_epi32(quads, _mm512_shuffle_epi32(quads, _MM_PERM_BADC));
  const __m512i sums = _mm512_add_epi32(pairs, _mm512_shuffle_epi32(pairs, _MM_PERM_CDAB));
  const __m512i first_of_each = _mm512_setr_epi32(0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12, 0, 4, 8, 12);
  return _mm_sub_epi32(_mm_setzero_si128(),
                       _mm512_castsi512_si128(_mm512_permutexvar_epi32(first_of_each, sums)));
}

// `Count` consecutive groups of 32 (at most 4), as scalar::quantize_rows defines them. Unrolled, or its
// arrays would lie in memory, where a vector that was written in parts waits for all of them.
template <int Count>
[[gnu::always_inline]] inline void quantize_groups(const float* x, const Groups& out) {
  const __mmask8 lanes = (1 << Count) - 1;
  __m512 v[8];
  __m512i m[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    v[2 * i] = i < Count ? _mm512_loadu_ps(x + 32 * i) : _mm512_setzero_ps();
    v[2 * i + 1] = i < Count ? _mm512_loadu_ps(x + 32 * i + 16) : _mm512_setzero_ps();
    m[i] = magnitudes(v[2 * i], v[2 * i + 1]);
  }
  const __m128 d = _mm_div_ps(_mm_castsi128_ps(largest_of_each(m)), _mm_set1_ps(127.0f));
  // d is normal, as one unsigned comparison of its bits.
  const __mmask8 usable = _mm_cmplt_epu32_mask(_mm_sub_epi32(_mm_castps_si128(d), _mm_set1_epi32(0x00800000)),
                                               _mm_set1_epi32(0x7F800000 - 0x00800000));
  const __m512 inverse = _mm512_castps128_ps512(_mm_div_ps(_mm_set1_ps(1.0f), d));
  __m512i bytes[2];
  __m128i nsum16[2];
#pragma GCC unroll 2
  for (int pair = 0; pair < 2; ++pair) {
    __m128i part[4];
#pragma GCC unroll 4
    for (int i = 0; i < 4; ++i) {
      const int group = 2 * pair + i / 2;
      const __m512 factor = _mm512_permutexvar_ps(_mm512_set1_epi32(group), inverse);
      const __mmask16 keep = (usable >> group & 1) != 0 ? 0xFFFF : 0;
      part[i] = _mm512_cvtepi32_epi8(_mm512_maskz_cvtps_epi32(keep, _mm512_mul_ps(v[4 * pair + i], factor)));
    }
    bytes[pair] = _mm512_inserti64x4(_mm512_castsi256_si512(_mm256_set_m128i(part[1], part[0])),
                                     _mm256_set_m128i(part[3], part[2]), 1);
    nsum16[pair] = negated_sums(bytes[pair]);
  }
  _mm512_mask_storeu_epi64(out.q, Count >= 2 ? 0xFF : 0x0F, bytes[0]);
  if (Count > 2) _mm512_mask_storeu_epi64(out.q + 64, Count >= 4 ? 0xFF : 0x0F, bytes[1]);
  const __m128i nsum = _mm_hadd_epi32(nsum16[0], nsum16[1]);
  const __m128 sum = _mm_cvtepi32_ps(_mm_sub_epi32(_mm_setzero_si128(), nsum));
  _mm_mask_storeu_ps(out.d, lanes, d);
  _mm_mask_storeu_ps(out.ds, lanes, _mm_mul_ps(d, sum));
  _mm_mask_storeu_epi32(out.nsum, lanes, nsum);
  _mm256_mask_storeu_epi32(out.nsum16, static_cast<__mmask8>((1 << 2 * Count) - 1),
                           _mm256_set_m128i(nsum16[1], nsum16[0]));
}

}  // namespace

void quantize_rows(const float* x, size_t ldx, uint32_t rows, uint32_t k, const QuantRows& out,
                   uint32_t first_row) {
  const size_t groups = k / kGroup, stride = out.k / kGroup;
  for (uint32_t r = 0; r < rows; ++r) {
    const float* row = x + r * ldx;
    const size_t first = (size_t{first_row} + r) * stride;
    size_t g = 0;
    for (; g + 4 <= groups; g += 4) quantize_groups<4>(row + g * kGroup, groups_at(out, first + g));
    row += g * kGroup;
    const Groups rest = groups_at(out, first + g);
    if (groups - g == 3) quantize_groups<3>(row, rest);
    if (groups - g == 2) quantize_groups<2>(row, rest);
    if (groups - g == 1) quantize_groups<1>(row, rest);
  }
}

}  // namespace kvasir::avx512
