#include <bit>
#include <cmath>

#include "kernels/generic/quantize_loop.h"
#include "kernels/isa/linear_functions.h"

namespace kvasir::scalar {
namespace {

constexpr uint32_t kSmallestNormal = 0x00800000;
constexpr uint32_t kInfinity = 0x7F800000;

// One group of 32. The largest magnitude is found on the bits as integers, so that a NaN wins and reaches d
// on every instruction set. Where d is zero, subnormal, infinite or NaN all q are 0: the group then
// contributes 0, or NaN through d.
void quantize_group(const float* x, int8_t* q, float* d_out, float* ds, int32_t* nsum, int32_t* nsum16) {
  uint32_t largest = 0;
  for (uint32_t i = 0; i < kGroup; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7FFFFFFF;
    largest = magnitude > largest ? magnitude : largest;
  }
  const float d = std::bit_cast<float>(largest) / 127.0f;
  const uint32_t d_bits = std::bit_cast<uint32_t>(d);
  const float inverse = d_bits >= kSmallestNormal && d_bits < kInfinity ? 1.0f / d : 0.0f;
  int32_t sums[2] = {0, 0};
  for (uint32_t i = 0; i < kGroup; ++i) {
    const auto value = inverse == 0.0f ? 0 : static_cast<int32_t>(std::lrintf(x[i] * inverse));
    q[i] = static_cast<int8_t>(value);
    sums[i / 16] += value;
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

}  // namespace kvasir::scalar
