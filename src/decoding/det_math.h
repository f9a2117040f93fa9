#pragma once

#include <bit>
#include <cstdint>

namespace kvasir {

// exp and log for probabilities, from additions and multiplications of doubles alone: the same bits under
// every C library, compiler and instruction set (the build forbids contraction; docs/numerics.md). Both are
// within a few units in the last place.

// e^x for x <= 0; 0 below -708 (and for -infinity). No NaN.
inline double det_exp(double x) {
  if (x < -708.0) return 0.0;
  constexpr double kLog2E = 1.4426950408889634, kLn2Hi = 0x1.62e42feep-1, kLn2Lo = 0x1.a39ef35793c76p-33;
  const int k = static_cast<int>(x * kLog2E - 0.5);  // nearest, as x <= 0
  const double r = (x - k * kLn2Hi) - k * kLn2Lo;  // |r| < 0.35; kLn2Hi has 32 bits, so the product is exact
  double sum = 1.0 / 6227020800.0;
  constexpr double kInverseFactorial[] = {
      1.0 / 479001600, 1.0 / 39916800, 1.0 / 3628800, 1.0 / 362880, 1.0 / 40320, 1.0 / 5040, 1.0 / 720,
      1.0 / 120,       1.0 / 24,       1.0 / 6,       0.5,          1.0,         1.0};
  for (double c : kInverseFactorial) sum = sum * r + c;
  return sum * std::bit_cast<double>(static_cast<uint64_t>(k + 1023) << 52);
}

// The natural logarithm of a positive normal double. Relative accuracy holds near 1 too.
inline double det_log(double x) {
  const auto bits = std::bit_cast<uint64_t>(x);
  // Exponent such that the mantissa lies in [sqrt(1/2), sqrt(2)).
  constexpr uint64_t kSqrtHalf = 0x3fe6a09e667f3bcd;
  const int64_t k = static_cast<int64_t>(bits - kSqrtHalf) >> 52;
  const double m = std::bit_cast<double>(bits - (static_cast<uint64_t>(k) << 52));
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s;
  double sum = 1.0 / 21;  // atanh series: log(m) = 2 (s + s^3/3 + s^5/5 + ...), |s| < 0.172
  for (int odd = 19; odd >= 3; odd -= 2) sum = sum * z + 1.0 / odd;
  const double log_m = 2.0 * s + 2.0 * s * z * sum;
  constexpr double kLn2Hi = 0x1.62e42feep-1, kLn2Lo = 0x1.a39ef35793c76p-33;
  return static_cast<double>(k) * kLn2Hi + (log_m + static_cast<double>(k) * kLn2Lo);
}

}  // namespace kvasir
