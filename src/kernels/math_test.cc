#include "kernels/generic/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "kernels/generic/log.h"
#include "kernels/generic/scalar_float.h"

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float exp1(float x) {
  return math::exp(scalar::Float1{x}).v;
}
float tanh1(float x) {
  return math::tanh(scalar::Float1{x}).v;
}
float silu1(float x) {
  return math::silu(scalar::Float1{x}).v;
}
float gelu1(float x) {
  return math::gelu_tanh(scalar::Float1{x}).v;
}

// |got - want| in units of the last place of want as a float.
double ulps(float got, double want) {
  const auto nearest = static_cast<float>(std::fabs(want));
  const float above = std::nextafter(nearest, kInfinity);
  return std::fabs(got - want) / (static_cast<double>(above) - nearest);
}

// Calls f on floats of both signs spread over all exponents: about 2^32 / stride of them.
template <class F>
void sweep(uint32_t stride, F f) {
  for (uint64_t bits = 0; bits < (uint64_t{1} << 32); bits += stride) {
    const float x = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isfinite(x)) f(x);
  }
}

TEST(Math, ExpIsWithinTwoUlp) {
  double worst = 0;
  sweep(1009, [&](float x) {
    const float y = exp1(x);
    if (x < math::kExpLow) {
      ASSERT_EQ(y, 0.0f) << x;
    } else if (x > math::kExpHigh) {
      ASSERT_EQ(y, kInfinity) << x;
    } else {
      worst = std::max(worst, ulps(y, std::exp(static_cast<double>(x))));
    }
  });
  for (float x = math::kExpLow; x < math::kExpHigh; x += 1.0f / 4096) {
    worst = std::max(worst, ulps(exp1(x), std::exp(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 2.0);
}

TEST(Math, ExpAtItsEdges) {
  EXPECT_EQ(exp1(0.0f), 1.0f);
  EXPECT_EQ(exp1(-0.0f), 1.0f);
  EXPECT_EQ(exp1(-kInfinity), 0.0f);
  EXPECT_FALSE(std::signbit(exp1(-kInfinity)));
  EXPECT_EQ(exp1(kInfinity), kInfinity);
  EXPECT_GT(exp1(math::kExpLow), 0.0f);
  EXPECT_LT(exp1(math::kExpHigh), kInfinity);
  for (const uint32_t nan : {0x7fc00000u, 0xffc00000u, 0x7fc001ffu, 0xffffffffu, 0x7f800001u}) {
    EXPECT_TRUE(std::isnan(exp1(std::bit_cast<float>(nan)))) << std::hex << nan;
    EXPECT_TRUE(std::isnan(tanh1(std::bit_cast<float>(nan)))) << std::hex << nan;
  }
}

TEST(Math, ExpOfNonpositiveHasTheSameBits) {
  sweep(4099, [](float x) {
    if (x > 0.0f) return;
    ASSERT_EQ(std::bit_cast<uint32_t>(exp1(x)),
              std::bit_cast<uint32_t>(math::exp_nonpositive(scalar::Float1{x}).v));
  });
}

TEST(Math, TanhIsWithinTwoUlp) {
  double worst = 0;
  sweep(1009, [&](float x) {
    const float y = tanh1(x);
    ASSERT_EQ(std::signbit(y), std::signbit(x));
    ASSERT_LE(std::fabs(y), 1.0f);
    if (std::fabs(x) > 1e-30f) worst = std::max(worst, ulps(y, std::tanh(static_cast<double>(x))));
  });
  for (float x = 0.0f; x < 10.0f; x += 1.0f / 65536) {
    worst = std::max(worst, ulps(tanh1(x), std::tanh(static_cast<double>(x))));
  }
  EXPECT_LE(worst, 2.0);
  EXPECT_EQ(tanh1(kInfinity), 1.0f);
  EXPECT_EQ(tanh1(-kInfinity), -1.0f);
}

// Relative to the result where exp does not amplify the rounding of its argument; see gelu_tanh's note.
TEST(Math, ActivationsFollowTheirFormulas) {
  for (float x = -80.0f; x < 80.0f; x += 1.0f / 1024) {
    const double d = x;
    const double silu = d / (1.0 + std::exp(-d));
    ASSERT_LE(std::fabs(silu1(x) - silu), 5e-7 * std::fabs(silu)) << x;
    const double gelu = 0.5 * d * (1.0 + std::tanh(std::sqrt(2.0 / M_PI) * (d + 0.044715 * d * d * d)));
    ASSERT_LE(std::fabs(gelu1(x) - gelu), 5e-7 * std::fabs(gelu) + 2e-7) << x;
  }
  EXPECT_EQ(silu1(0.0f), 0.0f);
  EXPECT_EQ(gelu1(0.0f), 0.0f);
  EXPECT_EQ(silu1(1e30f), 1e30f);
  EXPECT_EQ(gelu1(1e30f), 1e30f);
  EXPECT_EQ(silu1(-1e30f), 0.0f);
  EXPECT_EQ(gelu1(-1e30f), 0.0f);
}

TEST(Math, LogIsTheNearestFloat) {
  double worst = 0;
  sweep(4099, [&](float x) {
    if (x > 0.0f) worst = std::max(worst, ulps(math::log_nonnegative(x), std::log(static_cast<double>(x))));
  });
  EXPECT_LE(worst, 0.51);
  EXPECT_EQ(math::log_nonnegative(1.0f), 0.0f);
  EXPECT_EQ(math::log_nonnegative(0.0f), -kInfinity);
  EXPECT_EQ(math::log_nonnegative(kInfinity), kInfinity);
  EXPECT_TRUE(std::isnan(math::log_nonnegative(std::nanf(""))));
}

}  // namespace
}  // namespace kvasir
