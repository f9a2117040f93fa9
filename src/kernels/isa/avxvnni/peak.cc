#include <immintrin.h>

#include "kernels/isa/peak_functions.h"
#include "kernels/isa/peak_loops.h"

namespace kvasir::avxvnni {
namespace {

constexpr auto kKeep = [](auto& value) __attribute__((always_inline)) {
  asm volatile("" : "+x"(value));
};

}  // namespace

void int8_rounds(uint64_t rounds) {
  // Two a cycle with a latency of five need ten chains.
  peak::run_chains<kInt8MacsPerRound / 32>(
      rounds, _mm256_setzero_si256(), _mm256_set1_epi8(3),
      [](__m256i sum, __m256i a)
          __attribute__((always_inline)) { return _mm256_dpbusd_avx_epi32(sum, a, a); },
      kKeep);
}

}  // namespace kvasir::avxvnni
