#include <immintrin.h>

#include "kernels/isa/peak_functions.h"
#include "kernels/peak.h"

namespace kvasir::avx512 {
namespace {

// Makes the compiler believe that a value is used and may have changed, at no cost.
template <class V>
[[gnu::always_inline]] inline void keep(V& value) {
  asm volatile("" : "+v"(value));
}

template <int Streams>
void read_streams(const std::byte* data, size_t part) {
  __m512i sums[Streams][2];
#pragma GCC unroll 4
  for (int s = 0; s < Streams; ++s) sums[s][0] = sums[s][1] = _mm512_setzero_si512();
  for (size_t i = 0; i < part; i += 256) {
#pragma GCC unroll 4
    for (int s = 0; s < Streams; ++s) {
      const std::byte* p = data + static_cast<size_t>(s) * part + i;
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j)
        sums[s][j % 2] = _mm512_add_epi32(sums[s][j % 2], _mm512_load_si512(p + 64 * j));
    }
  }
#pragma GCC unroll 4
  for (int s = 0; s < Streams; ++s) keep(sums[s][0]), keep(sums[s][1]);
}

}  // namespace

void int8_rounds(uint64_t rounds) {
  constexpr int kChains = kInt8MacsPerRound / 64;  // two a cycle with a latency of five need ten
  __m512i sums[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) {
    sums[i] = _mm512_setzero_si512();
    keep(sums[i]);  // chains that start alike would be one to the compiler
  }
  __m512i a = _mm512_set1_epi8(3);
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, a);
    keep(a);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) keep(sums[i]);
}

void f32_rounds(uint64_t rounds) {
  constexpr int kChains = kF32MacsPerRound / 16;
  __m512 sums[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) {
    sums[i] = _mm512_setzero_ps();
    keep(sums[i]);  // chains that start alike would be one to the compiler
  }
  __m512 a = _mm512_set1_ps(0.5f);
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = _mm512_fmadd_ps(a, a, sums[i]);
    keep(a);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) keep(sums[i]);
}

void read(const std::byte* data, size_t bytes, uint32_t streams) {
  streams == 1 ? read_streams<1>(data, bytes) : read_streams<kReadStreams>(data, bytes / kReadStreams);
}

}  // namespace kvasir::avx512
