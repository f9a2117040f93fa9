#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace kvasir {

// How a model stretches the rotary positions it was trained with. The defaults leave them alone.
struct RopeScaling {
  double linear_factor = 1.0;  // positions are divided by it
  double magnitude = 1.0;      // cos and sin are multiplied by it

  // YaRN (arXiv 2309.00071, section 3.2): pairs that turn less than beta_slow times in the original context
  // are slowed by the factor, those that turn more than beta_fast times are left alone, those between are
  // mixed.
  double yarn_factor = 1.0;  // 1: no YaRN
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  bool whole_pairs = true;  // the mixing begins and ends at pairs, not between them

  bool by_factors = false;  // longrope: the file has divisors of each pair's frequency

  uint32_t original_context = 0;  // that the model was trained with before it was stretched; 0: not said
};

// The angle per position of each rotated pair: base^(-2i / rope_dim), scaled; `factors` (null or rope_dim /
// 2) are divisors of single pairs' angles. In double: positions are multiplied with it before one rounding.
std::vector<double> rope_frequencies(uint32_t rope_dim, double base, const RopeScaling& scaling,
                                     const float* factors);

// cos and then sin of the angles of a position, in double from the absolute position and rounded once, times
// the magnitude: 2 * frequencies.size() floats.
void rope_factors(int32_t position, std::span<const double> frequencies, double magnitude, float* out);

// What YaRN multiplies cos and sin with (eq. 22, both sides of the product at once): 0.1 ln(factor) + 1.
double yarn_magnitude(double factor);

}  // namespace kvasir
