#include <cstring>

#include "kernels/isa/peak_functions.h"
#include "kernels/peak.h"

namespace kvasir {

void dependent_adds(uint64_t rounds) {
  uint64_t sum = 0;
  uint64_t step = 3;
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 64
    for (uint32_t i = 0; i < kAddsPerRound; ++i) {
      asm("" : "+r"(step));  // not a constant to the compiler
      sum += step;
      asm volatile("" : "+r"(sum));
    }
  }
}

namespace scalar {

void int8_rounds(uint64_t rounds) {
  uint32_t sums[kInt8MacsPerRound];
  for (uint32_t i = 0; i < kInt8MacsPerRound; ++i) sums[i] = i;
  uint32_t a = 3, b = 5;
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kInt8MacsPerRound; ++i) {
      asm("" : "+r"(a), "+r"(b));  // the product is not the last one's
      sums[i] += a * b;
    }
  }
#pragma GCC unroll 8
  for (uint32_t i = 0; i < kInt8MacsPerRound; ++i) asm volatile("" : "+r"(sums[i]));
}

void f32_rounds(uint64_t rounds) {
  float sums[kF32MacsPerRound];
  for (uint32_t i = 0; i < kF32MacsPerRound; ++i) sums[i] = static_cast<float>(i);
  float a = 0.5f, b = 0.25f;
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 8
    for (uint32_t i = 0; i < kF32MacsPerRound; ++i) {
      asm("" : "+x"(a), "+x"(b));
      sums[i] += a * b;
    }
  }
#pragma GCC unroll 8
  for (uint32_t i = 0; i < kF32MacsPerRound; ++i) asm volatile("" : "+x"(sums[i]));
}

void read(const std::byte* data, size_t bytes, uint32_t streams) {
  const size_t part = bytes / streams;
  uint64_t sums[kReadStreams] = {};
  for (size_t i = 0; i < part; i += 64) {
    for (uint32_t s = 0; s < streams; ++s) {
      const std::byte* line = data + s * part + i;
#pragma GCC unroll 8
      for (size_t j = 0; j < 64; j += sizeof(uint64_t)) {
        uint64_t word;
        std::memcpy(&word, line + j, sizeof word);
        sums[s] += word;
      }
    }
  }
  for (uint64_t& sum : sums) asm volatile("" : "+r"(sum));
}

}  // namespace scalar
}  // namespace kvasir
