#include "decoding/race.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

#include "decoding/candidates.h"
#include "decoding/det_math.h"

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<float> random_row(size_t n, float spread, uint32_t seed) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> dist(0.0f, spread);
  std::vector<float> row(n);
  for (float& x : row) x = dist(rng);
  const float max = *std::max_element(row.begin(), row.end());
  for (float& x : row) x -= max;
  return row;
}

std::vector<Candidate> all_of(const std::vector<float>& row, float floor = -kInfinity) {
  std::vector<Candidate> out;
  for (size_t i = 0; i < row.size(); ++i)
    if (row[i] >= floor && row[i] > -kInfinity) out.push_back({row[i], static_cast<TokenId>(i)});
  return out;
}

TEST(DetMath, AgreesWithTheLibraryToAFewUnits) {
  std::mt19937_64 rng(1);
  std::uniform_real_distribution<double> far(-700.0, 0.0), near(-1.0, 0.0), unit(1e-12, 2.0);
  for (int i = 0; i < 200000; ++i) {
    const double x = i % 2 ? far(rng) : near(rng);
    EXPECT_NEAR(det_exp(x) / std::exp(x), 1.0, 2e-15) << x;
    const double y = unit(rng);
    EXPECT_LE(std::abs(det_log(y) - std::log(y)), 4e-16 + 4e-16 * std::abs(std::log(y))) << y;
    const double tiny = near(rng) * 0x1p-30;  // relative accuracy beside 1, where race times come from
    EXPECT_NEAR(det_log(1.0 + tiny) / std::log1p((1.0 + tiny) - 1.0), 1.0, 2e-15);
  }
  EXPECT_EQ(det_exp(0.0), 1.0);
  EXPECT_EQ(det_log(1.0), 0.0);
  EXPECT_EQ(det_exp(-INFINITY), 0.0);
  EXPECT_EQ(det_exp(-1e30), 0.0);
}

TEST(Race, PrunedPassEqualsTheFullRaceWhateverTheShapeOfTheRow) {
  for (size_t n : {1u, 2u, 63u, 64u, 65u, 1000u, 4099u}) {
    for (float spread : {0.0f, 0.01f, 1.0f, 4.0f, 30.0f, 1e6f}) {
      for (uint32_t position = 0; position < 60; ++position) {
        auto row = random_row(n, spread, position + 7);
        if (position % 3 == 1 && n > 2)
          row[(static_cast<size_t>(std::max_element(row.begin(), row.end()) - row.begin()) + 1) % n] =
              -kInfinity;
        const auto best = static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
        const RaceKey key{0x123456789abcdefULL + position, position, position % 5};
        ASSERT_EQ(race_row(row, best, -kInfinity, key), race(all_of(row), key)) << n << " " << spread;
        ASSERT_EQ(race_row(row, best, -2.0f, key), race(all_of(row, -2.0f), key)) << n << " " << spread;
      }
    }
  }
}

// Pearson's statistic of counts against probabilities; cells below 5 expected draws are pooled.
double chi_square(const std::vector<int>& counts, const std::vector<double>& p, int draws, int& cells) {
  double sum = 0.0, pooled_expected = 0.0, pooled_seen = 0.0;
  cells = 0;
  for (size_t i = 0; i < p.size(); ++i) {
    const double expected = p[i] * draws;
    if (expected < 5.0) {
      pooled_expected += expected;
      pooled_seen += counts[i];
      continue;
    }
    sum += (counts[i] - expected) * (counts[i] - expected) / expected;
    ++cells;
  }
  if (pooled_expected >= 1.0) {
    sum += (pooled_seen - pooled_expected) * (pooled_seen - pooled_expected) / pooled_expected;
    ++cells;
  }
  return sum;
}

TEST(Race, DrawsTheSoftmax) {
  const auto row = random_row(300, 1.5f, 42);
  const auto best = static_cast<TokenId>(std::max_element(row.begin(), row.end()) - row.begin());
  std::vector<double> p(row.size());
  double total = 0.0;
  for (size_t i = 0; i < row.size(); ++i) total += p[i] = std::exp(static_cast<double>(row[i]));
  for (double& x : p) x /= total;
  constexpr int kDraws = 100000;
  // Over positions, over seeds and over choices: each is an independent source.
  for (int source = 0; source < 3; ++source) {
    std::vector<int> counts(row.size());
    for (int i = 0; i < kDraws; ++i) {
      RaceKey key{99, 5, 3};
      if (source == 0)
        key.position = static_cast<uint32_t>(i);
      else if (source == 1)
        key.seed = static_cast<uint64_t>(i) << 20;
      else
        key.choice = static_cast<uint32_t>(i);
      ++counts[static_cast<size_t>(race_row(row, best, -kInfinity, key))];
    }
    int cells = 0;
    const double chi = chi_square(counts, p, kDraws, cells);
    const double freedom = cells - 1;
    EXPECT_LT(chi, freedom + 4.0 * std::sqrt(2.0 * freedom)) << "source " << source;
    EXPECT_GT(chi, freedom - 4.0 * std::sqrt(2.0 * freedom)) << "source " << source;
  }
}

TEST(Race, ATokensDrawDoesNotDependOnTheOthers) {
  // Taking away any token that did not win leaves the winner.
  const auto row = random_row(200, 1.0f, 3);
  for (uint32_t position = 0; position < 200; ++position) {
    const RaceKey key{11, position, 0};
    auto runners = all_of(row);
    const TokenId winner = race(runners, key);
    std::mt19937 rng(position);
    std::erase_if(runners, [&](const Candidate& c) { return c.id != winner && rng() % 2 == 0; });
    std::shuffle(runners.begin(), runners.end(), rng);
    EXPECT_EQ(race(runners, key), winner);
  }
}

TEST(Candidates, GatherLargestEqualsASort) {
  for (size_t n : {1u, 5u, 64u, 100u, 1000u, 5000u}) {
    for (int levels : {1, 3, 50, 100000}) {  // few levels: many ties
      std::mt19937 rng(static_cast<uint32_t>(n + static_cast<size_t>(levels)));
      std::vector<float> row(n);
      for (float& x : row) x = static_cast<float>(rng() % static_cast<uint32_t>(levels)) * 0.25f - 3.0f;
      if (n > 3) row[n / 2] = row[n / 3] = -kInfinity;
      auto sorted = all_of(row);
      std::sort(sorted.begin(), sorted.end(), ranks_before);
      SamplerScratch scratch;
      for (size_t k : {0u, 1u, 2u, 7u, 40u, 64u, 999u, 6000u}) {
        gather_largest(row, k, scratch);
        auto& got = scratch.candidates;
        std::sort(got.begin(), got.end(), ranks_before);
        ASSERT_EQ(got.size(), std::min(k, sorted.size())) << n << " " << levels << " " << k;
        for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i].id, sorted[i].id);
      }
    }
  }
}

TEST(Candidates, NucleusIsTheShortestSufficientPrefix) {
  for (float spread : {0.0f, 0.5f, 3.0f}) {
    const auto row = random_row(3000, spread, 9);
    auto sorted = all_of(row);
    std::sort(sorted.begin(), sorted.end(), ranks_before);
    for (double share : {0.0, 0.01, 0.3, 0.9, 0.999, 1.0}) {
      auto kept = all_of(row);
      const auto target = static_cast<uint64_t>(share * static_cast<double>(total_mass(kept)));
      keep_nucleus(kept, target);
      std::sort(kept.begin(), kept.end(), ranks_before);
      ASSERT_GE(kept.size(), 1u);
      for (size_t i = 0; i < kept.size(); ++i) ASSERT_EQ(kept[i].id, sorted[i].id);
      EXPECT_GE(total_mass(kept), target);
      if (kept.size() > 1) {
        kept.pop_back();
        EXPECT_LT(total_mass(kept), target);
      }
    }
  }
}

}  // namespace
}  // namespace kvasir
