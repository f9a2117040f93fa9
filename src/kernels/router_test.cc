#include "kernels/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace kvasir {
namespace {

using Score = RouterShape::Score;

struct Choice {
  std::vector<uint32_t> experts;
  std::vector<float> weights;
};

Choice choose(const RouterShape& shape, const std::vector<float>& logits,
              const std::vector<float>& bias = {}) {
  Choice c{std::vector<uint32_t>(shape.used), std::vector<float>(shape.used)};
  choose_experts(shape, logits.data(), bias.empty() ? nullptr : bias.data(), c.experts.data(),
                 c.weights.data());
  return c;
}

void expect_weights(const Choice& c, const std::vector<double>& want) {
  ASSERT_EQ(c.weights.size(), want.size());
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(c.weights[i], want[i], 1e-6) << i;
}

const float kLn2 = std::log(2.0f), kLn3 = std::log(3.0f), kLn4 = std::log(4.0f);

// exp of the logits: 1, 4, 2, 3; their sum is 10.
TEST(Router, SoftmaxOverAllBeforeTheChoice) {
  const Choice c = choose({.experts = 4, .used = 2}, {0, kLn4, kLn2, kLn3});
  EXPECT_EQ(c.experts, (std::vector<uint32_t>{1, 3}));
  expect_weights(c, {0.4, 0.3});
}

TEST(Router, SoftmaxOverTheChosen) {
  const Choice c = choose({.experts = 4, .used = 2, .normalised = true}, {0, kLn4, kLn2, kLn3});
  EXPECT_EQ(c.experts, (std::vector<uint32_t>{1, 3}));
  expect_weights(c, {4.0 / 7, 3.0 / 7});
}

// Sigmoids of 0, ln 4, ln 2, ln 3: 1/2, 4/5, 2/3, 3/4.
TEST(Router, SigmoidsWithABiasForTheChoiceAlone) {
  const RouterShape shape = {.experts = 4, .used = 2, .score = Score::kSigmoid, .scale = 2.5f};
  const Choice c = choose(shape, {0, kLn4, kLn2, kLn3}, {1.0f, 0, 0.2f, 0});
  EXPECT_EQ(c.experts, (std::vector<uint32_t>{0, 2}));  // 1.5 and 0.867, then 0.8
  expect_weights(c, {1.25, 2.5 * 2 / 3});
  RouterShape normalised = shape;
  normalised.normalised = true;
  expect_weights(choose(normalised, {0, kLn4, kLn2, kLn3}, {1.0f, 0, 0.2f, 0}), {2.5 * 3 / 7, 2.5 * 4 / 7});
}

// Without the bias expert 1 is the best of all; with it only probabilities, 0.1, 0.4, 0.2, 0.3, are compared.
TEST(Router, SoftmaxWithABias) {
  const Choice c = choose({.experts = 4, .used = 2}, {0, kLn4, kLn2, kLn3}, {0, -0.35f, 0, 0});
  EXPECT_EQ(c.experts, (std::vector<uint32_t>{3, 2}));
  expect_weights(c, {0.3, 0.2});
}

// The best expert stands in a group whose others are poor.
TEST(Router, GroupsByTheirBestOrByTheirBestTwo) {
  const std::vector<float> logits = {5, -9, -9, -9, 2, 1.5f, 2, 1.0f};
  RouterShape shape = {.experts = 8, .used = 2, .groups = 2, .groups_used = 1};
  EXPECT_EQ(choose(shape, logits).experts, (std::vector<uint32_t>{0, 1}));
  shape.score = Score::kSigmoid;  // 0.993 + 0 against 0.881 + 0.881
  EXPECT_EQ(choose(shape, logits).experts, (std::vector<uint32_t>{4, 6}));
  shape.groups_used = 2;
  EXPECT_EQ(choose(shape, logits).experts, (std::vector<uint32_t>{0, 4}));
}

TEST(Router, TiesGoToTheLowestAndZerosAreEqual) {
  EXPECT_EQ(choose({.experts = 5, .used = 3}, {1, 2, 2, 2, 2}).experts, (std::vector<uint32_t>{1, 2, 3}));
  EXPECT_EQ(choose({.experts = 3, .used = 2}, {-0.0f, 0.0f, -0.0f}).experts, (std::vector<uint32_t>{0, 1}));
}

TEST(Router, WhatIsNotANumberStillChoosesExpertsThatExist) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  EXPECT_EQ(choose({.experts = 4, .used = 2}, {nan, 1, nan, 2}).experts, (std::vector<uint32_t>{3, 1}));
  for (const Score score : {Score::kSoftmax, Score::kSigmoid}) {
    for (const float value : {nan, inf, -inf}) {
      const RouterShape shape = {
          .experts = 6, .used = 4, .score = score, .normalised = true, .groups = 2, .groups_used = 2};
      std::vector<uint32_t> ids = choose(shape, std::vector<float>(6, value)).experts;
      std::sort(ids.begin(), ids.end());
      EXPECT_EQ(std::unique(ids.begin(), ids.end()) - ids.begin(), 4) << value;
      EXPECT_LT(ids.back(), 6u);
    }
  }
}

TEST(Router, FarLogitsGiveFiniteWeights) {
  for (const Score score : {Score::kSoftmax, Score::kSigmoid}) {
    for (const float shift : {-1000.0f, 1000.0f}) {
      const RouterShape shape = {.experts = 3, .used = 2, .score = score, .normalised = true};
      for (const float w : choose(shape, {shift, shift + 1, shift - 200}).weights)
        EXPECT_TRUE(std::isfinite(w)) << shift;
    }
  }
}

// Against a sort, over many random rows.
TEST(Router, ChoosesTheBestOfMany) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal;
  for (int i = 0; i < 200; ++i) {
    std::vector<float> logits(128);
    for (float& x : logits) x = normal(random);
    std::vector<uint32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0u);
    std::stable_sort(ids.begin(), ids.end(), [&](uint32_t a, uint32_t b) { return logits[a] > logits[b]; });
    ids.resize(8);
    const Choice c = choose({.experts = 128, .used = 8}, logits);
    EXPECT_EQ(c.experts, ids);
    double sum = 0;
    for (const float x : logits) sum += std::exp(static_cast<double>(x));
    for (size_t k = 0; k < ids.size(); ++k)
      EXPECT_NEAR(c.weights[k], std::exp(static_cast<double>(logits[ids[k]])) / sum, 1e-6);
  }
}

TEST(Router, ASigmoid) {
  EXPECT_EQ(sigmoid(0), 0.5f);
  EXPECT_NEAR(sigmoid(kLn3), 0.75, 1e-7);
  EXPECT_EQ(sigmoid(-200), 0.0f);
  EXPECT_EQ(sigmoid(200), 1.0f);
}

}  // namespace
}  // namespace kvasir
