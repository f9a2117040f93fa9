#include "kernels/best_logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const KernelTable& kernels() {
  return kernel_table(best_isa());
}

// Few distinct values, so that ties abound; some of them -infinity.
std::vector<float> coarse_row(uint32_t n, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<float> row(n);
  for (float& x : row) x = rng() % 7 == 0 ? -kInfinity : static_cast<float>(rng() % 50) - 60.0f;
  return row;
}

std::vector<TokenId> ids(std::vector<Candidate> candidates) {
  std::sort(candidates.begin(), candidates.end(), ranks_before);
  std::vector<TokenId> out;
  for (const Candidate& c : candidates) out.push_back(c.id);
  return out;
}

std::vector<TokenId> ids(const BestLogits& best) {
  return ids(std::vector<Candidate>(best.list().begin(), best.list().end()));
}

std::vector<TokenId> by_sorting(const std::vector<float>& row, uint32_t k) {
  std::vector<Candidate> all;
  for (uint32_t i = 0; i < row.size(); ++i)
    if (row[i] > -kInfinity) all.push_back({row[i], static_cast<TokenId>(i)});
  std::vector<TokenId> sorted = ids(all);
  sorted.resize(std::min<size_t>(k, sorted.size()));
  return sorted;
}

TEST(BestLogits, EqualASortWhateverThePiecesAndTheirOrder) {
  std::mt19937 rng(5);
  for (const uint32_t n : {1u, 15u, 64u, 65u, 1000u, 5000u}) {
    for (const uint32_t k : {1u, 2u, 5u, 40u, BestLogits::kMost}) {
      const std::vector<float> row = coarse_row(n, n + k);
      std::vector<std::pair<uint32_t, uint32_t>> pieces;
      for (uint32_t begin = 0; begin < n;) {
        const uint32_t end = std::min(n, begin + 1 + static_cast<uint32_t>(rng() % 700));
        pieces.push_back({begin, end});
        begin = end;
      }
      std::shuffle(pieces.begin(), pieces.end(), rng);
      BestLogits parts[2], merged;
      for (BestLogits* b : {&parts[0], &parts[1], &merged}) b->start(k);
      for (size_t i = 0; i < pieces.size(); ++i) {
        const auto [begin, end] = pieces[i];
        parts[i % 2].add(row.data() + begin, end - begin, static_cast<TokenId>(begin), kernels());
      }
      merged.merge(parts[1]);
      merged.merge(parts[0]);
      EXPECT_EQ(ids(merged), by_sorting(row, k)) << k << " of " << n;
      EXPECT_EQ(merged.unsound.id, kNoToken);
    }
  }
}

TEST(BestLogits, NameTheLowestUnsoundToken) {
  for (const uint32_t k : {1u, 3u}) {
    for (const float bad : {kNan, kInfinity}) {
      std::vector<float> row = coarse_row(300, 1);
      row[270] = row[140] = row[141] = bad;
      BestLogits high, low;
      high.start(k);
      low.start(k);
      high.add(row.data() + 200, 100, 200, kernels());
      low.add(row.data(), 200, 0, kernels());
      EXPECT_EQ(high.unsound.id, 270);
      high.merge(low);
      EXPECT_EQ(high.unsound.id, 140);
      EXPECT_FALSE(high.unsound.x < kInfinity);
    }
  }
}

TEST(BestLogits, StartAfreshForTheNextRow) {
  BestLogits best;
  const float bad[] = {kNan, 9.0f};
  best.start(2);
  best.add(bad, 2, 0, kernels());
  const float row[] = {-kInfinity, -kInfinity, -3.0f};
  best.start(2);
  best.add(row, 3, 0, kernels());
  EXPECT_EQ(best.unsound.id, kNoToken);
  EXPECT_EQ(ids(best), (std::vector<TokenId>{2}));
}

}  // namespace
}  // namespace kvasir
