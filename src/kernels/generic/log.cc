#include "kernels/generic/log.h"

#include <bit>
#include <cstdint>
#include <limits>

namespace kvasir::math {

float log_nonnegative(float x) {
  if (x == 0.0f) return -std::numeric_limits<float>::infinity();
  if (!(x < std::numeric_limits<float>::infinity())) return x;
  // A double holds every float, subnormal ones included, as a normal number: x = m * 2^e with m in [1/sqrt 2,
  // sqrt 2).
  const uint64_t bits = std::bit_cast<uint64_t>(static_cast<double>(x));
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0x000fffffffffffffull) | 0x3ff0000000000000ull);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  // log m = 2 artanh(s), s = (m - 1) / (m + 1), |s| < 0.172: the last term is below 1e-15.
  const double s = (m - 1.0) / (m + 1.0);
  const double z = s * s;
  double sum = 1.0 / 19.0;
  for (int k = 17; k >= 1; k -= 2) sum = sum * z + 1.0 / k;
  return static_cast<float>(2.0 * s * sum + exponent * 0.6931471805599453);
}

}  // namespace kvasir::math
