#include <immintrin.h>

#include "kernels/isa/peak_functions.h"
#include "kernels/peak.h"

namespace kvasir::avx2 {
namespace {

// Makes the compiler believe that a value is used and may have changed, at no cost.
template <class V>
[[gnu::always_inline]] inline void keep(V& value) {
  asm volatile("" : "+x"(value));
}

template <int Streams>
void read_streams(const std::byte* data, size_t part) {
  __m256i sums[Streams][2];
#pragma GCC unroll 4
  for (int s = 0; s < Streams; ++s) sums[s][0] = sums[s][1] = _mm256_setzero_si256();
  for (size_t i = 0; i < part; i += 128) {
#pragma GCC unroll 4
    for (int s = 0; s < Streams; ++s) {
      const auto* p = reinterpret_cast<const __m256i*>(data + static_cast<size_t>(s) * part + i);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sums[s][j % 2] = _mm256_add_epi32(sums[s][j % 2], _mm256_load_si256(p + j));
    }
  }
#pragma GCC unroll 4
  for (int s = 0; s < Streams; ++s) keep(sums[s][0]), keep(sums[s][1]);
}

}  // namespace

// VPMADDUBSW, VPMADDWD, VPADDD: the set has no shorter way to an exact sum of products.
void int8_rounds(uint64_t rounds) {
  constexpr int kChains = kInt8MacsPerRound / 32;
  __m256i sums[kChains];
#pragma GCC unroll 8
  for (int i = 0; i < kChains; ++i) {
    sums[i] = _mm256_setzero_si256();
    keep(sums[i]);  // chains that start alike would be one to the compiler
  }
  __m256i a = _mm256_set1_epi8(3);
  const __m256i b = _mm256_set1_epi8(5);
  const __m256i ones = _mm256_set1_epi16(1);
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 8
    for (int i = 0; i < kChains; ++i) {
      keep(a);  // the product is not the last one's
      sums[i] = _mm256_add_epi32(sums[i], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < kChains; ++i) keep(sums[i]);
}

void f32_rounds(uint64_t rounds) {
  constexpr int kChains = kF32MacsPerRound / 8;
  __m256 sums[kChains];
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) {
    sums[i] = _mm256_setzero_ps();
    keep(sums[i]);  // chains that start alike would be one to the compiler
  }
  __m256 a = _mm256_set1_ps(0.5f);
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 12
    for (int i = 0; i < kChains; ++i) sums[i] = _mm256_fmadd_ps(a, a, sums[i]);
    keep(a);
  }
#pragma GCC unroll 12
  for (int i = 0; i < kChains; ++i) keep(sums[i]);
}

void read(const std::byte* data, size_t bytes, uint32_t streams) {
  streams == 1 ? read_streams<1>(data, bytes) : read_streams<kReadStreams>(data, bytes / kReadStreams);
}

}  // namespace kvasir::avx2
