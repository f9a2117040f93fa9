#include <immintrin.h>

#include "kernels/isa/peak_functions.h"

namespace kvasir::avxvnni {

void int8_rounds(uint64_t rounds) {
  constexpr int kChains = kInt8MacsPerRound / 32;  // two a cycle with a latency of five need ten
  __m256i sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) {
    sums[i] = _mm256_setzero_si256();
    asm volatile("" : "+x"(sums[i]));  // chains that start alike would be one to the compiler
  }
  __m256i a = _mm256_set1_epi8(3);
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm256_dpbusd_avx_epi32(sums[i], a, a);
    asm volatile("" : "+x"(a));
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) asm volatile("" : "+x"(sums[i]));
}

}  // namespace kvasir::avxvnni
