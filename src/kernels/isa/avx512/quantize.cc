#include <immintrin.h>

#include "kernels/isa/linear_functions.h"

namespace kvasir::avx512 {
namespace {

// One group of 32, as scalar::quantize_rows defines it.
[[gnu::always_inline]] inline void quantize_group(const float* x, int8_t* q, float* d_out, float* ds,
                                                  int32_t* nsum, int32_t* nsum16) {
  const __m512 v[2] = {_mm512_loadu_ps(x), _mm512_loadu_ps(x + 16)};
  const __m512i magnitude_mask = _mm512_set1_epi32(0x7FFFFFFF);
  const __m512i magnitude = _mm512_max_epu32(_mm512_and_si512(_mm512_castps_si512(v[0]), magnitude_mask),
                                             _mm512_and_si512(_mm512_castps_si512(v[1]), magnitude_mask));
  const __m128 largest =
      _mm_castsi128_ps(_mm_cvtsi32_si128(static_cast<int>(_mm512_reduce_max_epu32(magnitude))));
  const __m128 d = _mm_div_ss(largest, _mm_set_ss(127.0f));
  // d > 0 and below infinity, as one unsigned comparison of its bits.
  const uint32_t d_bits = static_cast<uint32_t>(_mm_cvtsi128_si32(_mm_castps_si128(d)));
  const __mmask16 usable = d_bits - 1 < 0x7F800000u - 1 ? 0xFFFF : 0;
  const __m512 divisor = _mm512_broadcastss_ps(d);
  int32_t sums[2];
  for (int half = 0; half < 2; ++half) {
    __m512i value = _mm512_maskz_cvtps_epi32(usable, _mm512_div_ps(v[half], divisor));
    value = _mm512_max_epi32(_mm512_min_epi32(value, _mm512_set1_epi32(127)), _mm512_set1_epi32(-127));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(q + 16 * half), _mm512_cvtepi32_epi8(value));
    sums[half] = _mm512_reduce_add_epi32(value);
  }
  *d_out = _mm_cvtss_f32(d);
  *ds = _mm_cvtss_f32(d) * static_cast<float>(sums[0] + sums[1]);
  *nsum = -(sums[0] + sums[1]);
  nsum16[0] = -sums[0];
  nsum16[1] = -sums[1];
}

}  // namespace

void quantize_rows(const float* x, size_t ldx, uint32_t rows, uint32_t k, const QuantRows& out,
                   uint32_t first_row) {
  const size_t groups = k / kGroup, stride = out.k / kGroup;
  for (uint32_t r = 0; r < rows; ++r) {
    const size_t row = size_t{first_row} + r;
    for (size_t g = 0; g < groups; ++g) {
      const size_t at = row * stride + g;
      quantize_group(x + r * ldx + g * kGroup, out.q + at * kGroup, out.d + at, out.ds + at, out.nsum + at,
                     out.nsum16 + 2 * at);
    }
  }
}

}  // namespace kvasir::avx512
