#pragma once

#include "kernels/isa/avx2/linear_block.h"

// Integer dots with VPDPBUSD on 256 bits.
namespace kvasir::avxvnni {
namespace {

// The instruction has two encodings: VEX (AVX-VNNI), which is what this instruction set stands for, and EVEX
// (AVX512-VNNI with AVX512-VL), which the tests build the same kernels with. Both do the same, exactly,
// without saturation (Intel SDM vol. 2C, VPDPBUSD). Where there is neither, the tests build them with the
// same sums from AVX2.
[[gnu::always_inline]] inline __m256i dot_quads(__m256i sum, __m256i codes, __m256i activations) {
#if defined(__AVXVNNI__)
  return _mm256_dpbusd_avx_epi32(sum, codes, activations);
#elif defined(__AVX512VNNI__)
  return _mm256_dpbusd_epi32(sum, codes, activations);
#else
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(codes, _mm256_set1_epi16(255)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(activations, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(codes, 8), _mm256_srai_epi16(activations, 8));
  return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
#endif
}

// See avx2/dots.h. Codes are unsigned, as they lie in memory.
struct VnniDots {
  template <class F>
  static constexpr bool kSigned = false;

  template <class F, int First, int Count, int Rows, class Source>
  [[gnu::always_inline]] static void add(const Source& source, const int8_t* q, size_t k,
                                         __m256i (&dots)[Rows][2]) {
    using namespace avx2;
    unroll<Count>([&](auto i) __attribute__((always_inline)) {
      constexpr int kI = First + decltype(i)::value;
      const __m256i w[2] = {source.template quad<kI, 0>(), source.template quad<kI, 1>()};
      unroll<Rows>([&](auto r) __attribute__((always_inline)) {
        constexpr int kR = decltype(r)::value;
        const __m256i a = broadcast_quad(q + kR * k + 4 * kI);
        unroll<2>([&](auto h) __attribute__((always_inline)) {
          constexpr int kH = decltype(h)::value;
          dots[kR][kH] = dot_quads(dots[kR][kH], w[kH], a);
        });
      });
    });
  }
};

}  // namespace
}  // namespace kvasir::avxvnni
