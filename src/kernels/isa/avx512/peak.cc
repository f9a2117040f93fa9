#include <immintrin.h>

#include "kernels/isa/peak_functions.h"
#include "kernels/isa/peak_loops.h"

namespace kvasir::avx512 {
namespace {

constexpr auto kKeep = [](auto& value) __attribute__((always_inline)) {
  asm volatile("" : "+v"(value));
};

}  // namespace

void int8_rounds(uint64_t rounds) {
  // Two a cycle with a latency of five need ten chains.
  peak::run_chains<kInt8MacsPerRound / 64>(
      rounds, _mm512_setzero_si512(), _mm512_set1_epi8(3),
      [](__m512i sum, __m512i a) __attribute__((always_inline)) { return _mm512_dpbusd_epi32(sum, a, a); },
      kKeep);
}

void f32_rounds(uint64_t rounds) {
  peak::run_chains<kF32MacsPerRound / 16>(
      rounds, _mm512_setzero_ps(), _mm512_set1_ps(0.5f),
      [](__m512 sum, __m512 a) __attribute__((always_inline)) { return _mm512_fmadd_ps(a, a, sum); }, kKeep);
}

void read(const std::byte* data, size_t bytes, uint32_t streams) {
  peak::read<2>(
      data, bytes, streams, _mm512_setzero_si512(),
      [](__m512i sum, const std::byte* p)
          __attribute__((always_inline)) { return _mm512_add_epi32(sum, _mm512_load_si512(p)); },
      kKeep);
}

}  // namespace kvasir::avx512
