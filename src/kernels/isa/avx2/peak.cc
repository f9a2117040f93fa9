#include <immintrin.h>

#include "kernels/isa/peak_functions.h"
#include "kernels/isa/peak_loops.h"

namespace kvasir::avx2 {
namespace {

constexpr auto kKeep = [](auto& value) __attribute__((always_inline)) {
  asm volatile("" : "+x"(value));
};

}  // namespace

// VPMADDUBSW, VPMADDWD, VPADDD: the set has no shorter way to an exact sum of products.
void int8_rounds(uint64_t rounds) {
  const __m256i b = _mm256_set1_epi8(5), ones = _mm256_set1_epi16(1);
  peak::run_chains<kInt8MacsPerRound / 32>(
      rounds, _mm256_setzero_si256(), _mm256_set1_epi8(3),
      [&](__m256i sum, __m256i & a) __attribute__((always_inline)) {
        kKeep(a);  // the product is not the last one's
        return _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
      },
      kKeep);
}

void f32_rounds(uint64_t rounds) {
  peak::run_chains<kF32MacsPerRound / 8>(
      rounds, _mm256_setzero_ps(), _mm256_set1_ps(0.5f),
      [](__m256 sum, __m256 a) __attribute__((always_inline)) { return _mm256_fmadd_ps(a, a, sum); }, kKeep);
}

void read(const std::byte* data, size_t bytes, uint32_t streams) {
  peak::read<2>(
      data, bytes, streams, _mm256_setzero_si256(),
      [](__m256i sum, const std::byte* p) __attribute__((always_inline)) {
        return _mm256_add_epi32(sum, _mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
      },
      kKeep);
}

}  // namespace kvasir::avx2
