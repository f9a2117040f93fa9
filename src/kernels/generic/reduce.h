#pragma once

// Sixteen partial sums and the one tree that joins them: what every sum of the engine uses (docs/numerics.md,
// rule 2).
namespace kvasir::scalar {

inline constexpr int kPartials = 16;

// (i, i + 8), then (i, i + 4), (i, i + 2), (0, 1).
inline float tree_sum(const float* partials) {
  float s[8];
  for (int i = 0; i < 8; ++i) s[i] = partials[i] + partials[i + 8];
  for (int width = 4; width >= 1; width /= 2) {
    for (int i = 0; i < width; ++i) s[i] = s[i] + s[i + width];
  }
  return s[0];
}

}  // namespace kvasir::scalar
