#include <arm_neon.h>

#include "kernels/generic/quantize_loop.h"
#include "kernels/isa/linear_functions.h"

namespace kvasir::neon {
namespace {

// The largest magnitude, compared as integers so that a NaN wins.
[[gnu::always_inline]] inline float largest_magnitude(const float32x4_t (&v)[8]) {
  uint32x4_t m = vdupq_n_u32(0);
  for (int i = 0; i < 8; ++i)
    m = vmaxq_u32(m, vandq_u32(vreinterpretq_u32_f32(v[i]), vdupq_n_u32(0x7FFFFFFF)));
  const uint32_t bits = vmaxvq_u32(m);
  float largest;
  __builtin_memcpy(&largest, &bits, sizeof largest);
  return largest;
}

// One group of 32, as scalar::quantize_rows defines it.
[[gnu::always_inline]] inline void quantize_group(const float* x, int8_t* q, float* d_out, float* ds,
                                                  int32_t* nsum, int32_t* nsum16) {
  float32x4_t v[8];
  for (int i = 0; i < 8; ++i) v[i] = vld1q_f32(x + 4 * i);
  const float d = largest_magnitude(v) / 127.0f;
  // d is normal, as one unsigned comparison of its bits.
  uint32_t d_bits;
  __builtin_memcpy(&d_bits, &d, sizeof d_bits);
  const int32x4_t usable = vdupq_n_s32(d_bits - 0x00800000u < 0x7F800000u - 0x00800000u ? -1 : 0);
  const float32x4_t inverse = vdupq_n_f32(1.0f / d);
  int32_t sums[2];
  for (int half = 0; half < 2; ++half) {
    int32x4_t value[4];
    for (int i = 0; i < 4; ++i)
      value[i] = vandq_s32(vcvtnq_s32_f32(vmulq_f32(v[4 * half + i], inverse)), usable);
    const int16x8_t low = vcombine_s16(vmovn_s32(value[0]), vmovn_s32(value[1]));
    const int16x8_t high = vcombine_s16(vmovn_s32(value[2]), vmovn_s32(value[3]));
    vst1q_s8(q + 16 * half, vcombine_s8(vmovn_s16(low), vmovn_s16(high)));
    sums[half] = vaddvq_s32(vaddq_s32(vaddq_s32(value[0], value[1]), vaddq_s32(value[2], value[3])));
  }
  *d_out = d;
  *ds = d * static_cast<float>(sums[0] + sums[1]);
  *nsum = -(sums[0] + sums[1]);
  nsum16[0] = -sums[0];
  nsum16[1] = -sums[1];
}

}  // namespace

void quantize_rows(const float* x, size_t ldx, uint32_t rows, uint32_t k, const QuantRows& out,
                   uint32_t first_row) {
  quantize_groupwise(x, ldx, rows, k, out, first_row, quantize_group);
}

}  // namespace kvasir::neon
