#include <arm_neon.h>

#include "kernels/isa/peak_functions.h"
#include "kernels/isa/peak_loops.h"

namespace kvasir::neon {
namespace {

constexpr auto kKeep = [](auto& value) __attribute__((always_inline)) {
  asm volatile("" : "+w"(value));
};

}  // namespace

void int8_rounds(uint64_t rounds) {
  // Four a cycle with a latency of four need sixteen chains.
  peak::run_chains<kInt8MacsPerRound / 16>(
      rounds, vdupq_n_s32(0), vdupq_n_s8(3),
      [](int32x4_t sum, int8x16_t a) __attribute__((always_inline)) { return vdotq_s32(sum, a, a); }, kKeep);
}

void f32_rounds(uint64_t rounds) {
  peak::run_chains<kF32MacsPerRound / 4>(
      rounds, vdupq_n_f32(0), vdupq_n_f32(0.5f),
      [](float32x4_t sum, float32x4_t a) __attribute__((always_inline)) { return vfmaq_f32(sum, a, a); },
      kKeep);
}

void read(const std::byte* data, size_t bytes, uint32_t streams) {
  peak::read<4>(
      data, bytes, streams, vdupq_n_s32(0),
      [](int32x4_t sum, const std::byte* p) __attribute__((always_inline)) {
        return vaddq_s32(sum, vld1q_s32(reinterpret_cast<const int32_t*>(p)));
      },
      kKeep);
}

}  // namespace kvasir::neon
