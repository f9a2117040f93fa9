#include "machine_peak.h"

#include <immintrin.h>
#include <time.h>

namespace kvasir::bench {

double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

__attribute__((target("avx512f,avx512vnni"))) double int8_peak() {
  constexpr int kChains = 16;  // more than latency times throughput of any processor that has the instruction
  constexpr int kRounds = 20000;
  double best = 0;
  for (int attempt = 0; attempt < 5; ++attempt) {
    __m512i sums[kChains];
    for (__m512i& s : sums) s = _mm512_setzero_si512();
    const __m512i a = _mm512_set1_epi8(3);
    const double begin = thread_seconds();
    for (int round = 0; round < kRounds; ++round) {
#pragma GCC unroll 16
      for (int i = 0; i < kChains; ++i) sums[i] = _mm512_dpbusd_epi32(sums[i], a, a);
      asm volatile("" : : "v"(sums[0]));
    }
    const double seconds = thread_seconds() - begin;
    __m512i total = sums[0];
    for (int i = 1; i < kChains; ++i) total = _mm512_add_epi32(total, sums[i]);
    asm volatile("" : : "v"(total));
    const double rate = 64.0 * kChains * kRounds / seconds;
    best = rate > best ? rate : best;
  }
  return best;
}

__attribute__((target("avx512f"))) double read_bandwidth(const std::byte* data, size_t bytes) {
  __m512i sums[4];
  for (__m512i& s : sums) s = _mm512_setzero_si512();
  const double begin = thread_seconds();
  for (size_t i = 0; i + 256 <= bytes; i += 256)
    for (int j = 0; j < 4; ++j)
      sums[j] = _mm512_add_epi32(sums[j], _mm512_loadu_si512(data + i + 64 * static_cast<size_t>(j)));
  for (__m512i& s : sums) asm volatile("" : "+v"(s));
  return static_cast<double>(bytes) / (thread_seconds() - begin);
}

}  // namespace kvasir::bench
