#include "models/rope_frequencies.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>

namespace kvasir {
namespace {

TEST(RopeFrequencies, ArePowersOfTheBase) {
  const auto f = rope_frequencies(8, 10000.0, {}, nullptr);
  ASSERT_EQ(f.size(), 4u);
  EXPECT_DOUBLE_EQ(f[0], 1.0);
  EXPECT_NEAR(f[1], 0.1, 1e-15);
  EXPECT_NEAR(f[2], 0.01, 1e-16);
  EXPECT_NEAR(f[3], 0.001, 1e-17);
}

TEST(RopeFrequencies, AreDividedByTheFactorOfPositionsAndByThoseOfPairs) {
  const float divisors[] = {1.0f, 2.0f};
  const auto f = rope_frequencies(4, 10000.0, {.linear_factor = 8.0}, divisors);
  EXPECT_DOUBLE_EQ(f[0], 1.0 / 8);
  EXPECT_NEAR(f[1], 0.01 / 8 / 2, 1e-16);
}

// Sixteen values, a context of 32: the pair that turns once in it is 16 ln(32 / 2 pi) / (2 ln 10000) = 1.41,
// up to 2; the one that turns 32 times would lie below 0. Pair 1 lies halfway between.
TEST(RopeFrequencies, YarnSlowsLongWavesOnly) {
  const auto f = rope_frequencies(16, 10000.0, {.yarn_factor = 4.0, .original_context = 32}, nullptr);
  EXPECT_DOUBLE_EQ(f[0], 1.0);
  EXPECT_NEAR(f[1], std::pow(10.0, -0.5) * (0.5 + 0.5 / 4), 1e-15);
  EXPECT_NEAR(f[2], 0.1 / 4, 1e-15);
  EXPECT_NEAR(f[7], std::pow(10.0, -3.5) / 4, 1e-18);
}

TEST(RopeFrequencies, YarnLeavesAllAloneWhereEveryPairTurnsOften) {
  const auto f = rope_frequencies(4, 10.0, {.yarn_factor = 2.0, .original_context = 100'000}, nullptr);
  EXPECT_DOUBLE_EQ(f[0], 1.0);
  EXPECT_NEAR(f[1], std::pow(10.0, -0.5), 1e-15);
}

TEST(RopeFrequencies, YarnsMagnitudeGrowsWithTheLogarithm) {
  EXPECT_DOUBLE_EQ(yarn_magnitude(1.0), 1.0);
  EXPECT_DOUBLE_EQ(yarn_magnitude(0.5), 1.0);
  EXPECT_NEAR(yarn_magnitude(4.0), 1.1386294361, 1e-9);
}

// 16 values, base 150000, 32 positions: the ramp ends at pair 16 ln(32 / 2 pi) / (2 ln 150000) = 1.0925,
// or 2.
TEST(RopeFrequencies, YarnMixesBetweenPairsWhereAsked) {
  RopeScaling s;
  s.yarn_factor = 4;
  s.original_context = 32;
  const double plain = std::pow(150000.0, -2.0 / 16);
  EXPECT_NEAR(rope_frequencies(16, 150000, s, nullptr)[1], plain * (0.5 + 0.5 / 4), 1e-12);
  s.whole_pairs = false;
  const double slowed = 1 / (16 * std::log(32 / (2 * std::numbers::pi)) / (2 * std::log(150000.0)));
  EXPECT_NEAR(rope_frequencies(16, 150000, s, nullptr)[1], plain * (1 - slowed + slowed / 4), 1e-12);
}

}  // namespace
}  // namespace kvasir
