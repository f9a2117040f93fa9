#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/table.h"

namespace kvasir {

// The two row kernels that choosing a token needs, written plainly in double, so that these tests stand
// alone.
inline const KernelTable& plain_kernels() {
  static const KernelTable table = [] {
    KernelTable t{};
    t.argmax = [](const float* x, uint32_t n) {
      uint32_t best = 0;
      for (uint32_t i = 1; i < n; ++i)
        if (x[i] > x[best]) best = i;
      return best;
    };
    t.log_sum_exp = [](const float* x, uint32_t n) {
      double max = -INFINITY, sum = 0.0;
      for (uint32_t i = 0; i < n; ++i) max = std::max(max, static_cast<double>(x[i]));
      for (uint32_t i = 0; i < n; ++i) sum += std::exp(static_cast<double>(x[i]) - max);
      return static_cast<float>(max + std::log(sum));
    };
    return t;
  }();
  return table;
}

}  // namespace kvasir
