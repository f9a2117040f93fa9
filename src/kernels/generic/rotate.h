#pragma once

#include "kernels/generic/kv_address.h"

namespace kvasir::scalar {

// The rotation of kernels/generic/kv_address.h, in place, and the multiplication by `after`.
inline void rotate_head(float* x, uint32_t head_dim, float after) {
  const uint32_t block = rotated_block(head_dim);
  if (block == 0) return;
  for (uint32_t stride = 1; stride < block; stride *= 2) {
    for (uint32_t i = 0; i < head_dim; ++i) {
      if ((i & stride) != 0) continue;
      const float a = x[i];
      const float b = x[i + stride];
      x[i] = a + b;
      x[i + stride] = a - b;
    }
  }
  for (uint32_t i = 0; i < head_dim; ++i) x[i] *= after;
}

// What a rotated query is multiplied by, so that scores are those of what was rotated.
inline float query_factor(uint32_t head_dim) {
  const uint32_t block = rotated_block(head_dim);
  return block == 0 ? 1.0f : 1.0f / static_cast<float>(block);
}

}  // namespace kvasir::scalar
