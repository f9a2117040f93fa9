#pragma once

#include <cstdint>

#include "kernels/generic/kv_address.h"
#include "kernels/inline.h"

// The rotation of kernels/generic/kv_address.h over V, sixteen floats of an instruction set.
namespace kvasir::vec {

// One pass takes pairs of neighbours; sums go to the front and differences to the back, so that every pass
// looks alike and after all of them each value is back at its place.
template <class V>
KVASIR_INLINE void rotate_pass(const float* x, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n / 2; i += 16) {
    V even, odd;
    deinterleave(V::load(x + 2 * i), V::load(x + 2 * i + 16), even, odd);
    (even + odd).store(y + i);
    (even - odd).store(y + n / 2 + i);
  }
}

// out = x * scale, rotated and multiplied by `after`.
template <class V>
void rotate_head(const float* x, uint32_t head_dim, float scale, float after, float* out) {
  alignas(64) float other[kAttnMaxHeadDim];
  const uint32_t block = rotated_block(head_dim);
  for (uint32_t d = 0; d < head_dim; d += 16) (V::load(x + d) * V::broadcast(scale)).store(out + d);
  if (block == 0) return;
  for (uint32_t begin = 0; begin < head_dim; begin += block) {
    float* from = out + begin;
    float* to = other;
    for (uint32_t pass = 1; pass < block; pass *= 2) {
      rotate_pass<V>(from, block, to);
      float* last = from;
      from = to;
      to = last;
    }
    for (uint32_t d = 0; d < block; d += 16) (V::load(from + d) * V::broadcast(after)).store(out + begin + d);
  }
}

}  // namespace kvasir::vec
