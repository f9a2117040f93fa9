#include <arm_neon.h>

#include "kernels/isa/peak_functions.h"
#include "kernels/peak.h"

namespace kvasir::neon {
namespace {

// Makes the compiler believe that a value is used and may have changed, at no cost.
template <class V>
[[gnu::always_inline]] inline void keep(V& value) {
  asm volatile("" : "+w"(value));
}

template <int Streams>
void read_streams(const std::byte* data, size_t part) {
  int32x4_t sums[Streams][4];
#pragma GCC unroll 4
  for (int s = 0; s < Streams; ++s) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) sums[s][j] = vdupq_n_s32(0);
  }
  for (size_t i = 0; i < part; i += 64) {
#pragma GCC unroll 4
    for (int s = 0; s < Streams; ++s) {
      const auto* p = reinterpret_cast<const int32_t*>(data + static_cast<size_t>(s) * part + i);
#pragma GCC unroll 4
      for (int j = 0; j < 4; ++j) sums[s][j] = vaddq_s32(sums[s][j], vld1q_s32(p + 4 * j));
    }
  }
#pragma GCC unroll 4
  for (int s = 0; s < Streams; ++s) {
#pragma GCC unroll 4
    for (int j = 0; j < 4; ++j) keep(sums[s][j]);
  }
}

}  // namespace

void int8_rounds(uint64_t rounds) {
  constexpr int kChains = kInt8MacsPerRound / 16;  // four a cycle with a latency of four need sixteen
  int32x4_t sums[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) {
    sums[i] = vdupq_n_s32(0);
    keep(sums[i]);  // chains that start alike would be one to the compiler
  }
  int8x16_t a = vdupq_n_s8(3);
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = vdotq_s32(sums[i], a, a);
    keep(a);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) keep(sums[i]);
}

void f32_rounds(uint64_t rounds) {
  constexpr int kChains = kF32MacsPerRound / 4;
  float32x4_t sums[kChains];
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) {
    sums[i] = vdupq_n_f32(0);
    keep(sums[i]);  // chains that start alike would be one to the compiler
  }
  float32x4_t a = vdupq_n_f32(0.5f);
  for (uint64_t round = 0; round < rounds; ++round) {
#pragma GCC unroll 16
    for (int i = 0; i < kChains; ++i) sums[i] = vfmaq_f32(sums[i], a, a);
    keep(a);
  }
#pragma GCC unroll 16
  for (int i = 0; i < kChains; ++i) keep(sums[i]);
}

void read(const std::byte* data, size_t bytes, uint32_t streams) {
  streams == 1 ? read_streams<1>(data, bytes) : read_streams<kReadStreams>(data, bytes / kReadStreams);
}

}  // namespace kvasir::neon
