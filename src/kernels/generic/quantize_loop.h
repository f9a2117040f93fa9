#pragma once

#include "kernels/inline.h"
#include "kernels/matrix.h"

namespace kvasir {

// quantize_rows group by group: calls quantize(x, q, d, ds, nsum, nsum16) with the places of each group.
template <class Quantize>
KVASIR_INLINE void quantize_groupwise(const float* x, size_t ldx, uint32_t rows, uint32_t k,
                                      const QuantRows& out, uint32_t first_row, const Quantize& quantize) {
  const size_t groups = k / kGroup, stride = out.k / kGroup;
  for (uint32_t r = 0; r < rows; ++r) {
    const size_t row = size_t{first_row} + r;
    for (size_t g = 0; g < groups; ++g) {
      const size_t at = row * stride + g;
      quantize(x + r * ldx + g * kGroup, out.q + at * kGroup, out.d + at, out.ds + at, out.nsum + at,
               out.nsum16 + 2 * at);
    }
  }
}

}  // namespace kvasir
