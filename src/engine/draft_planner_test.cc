#include "engine/draft_planner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

namespace kvasir {
namespace {

// Steps that take `first` seconds, and `more` for each row.
struct LinearCosts final : StepCosts {
  LinearCosts(double first_row, double further_row) : first(first_row), more(further_row) {}
  void add(StepLoad& load, const StepRows& sequence, LogitRows logits) const override {
    load.rows += sequence.rows;
    load.logits.rows += logits.rows;
  }
  double seconds(const StepLoad& load) const override { return first + more * load.rows; }
  double first, more;
};

// A drafter that is nothing but its cost: of a pass, and of each sequence in it.
struct Priced final : Drafter {
  Priced(double pass_seconds, double each_seconds) : pass(pass_seconds), each(each_seconds) {}
  std::string_view name() const override { return "priced"; }
  void open(uint32_t, uint32_t) override {}
  void close(uint32_t) override {}
  void propose(std::span<DraftJob>) override {}
  double seconds(uint32_t sequences, uint32_t tokens) const override {
    return tokens * (pass + each * sequences);
  }
  bool is_free() const override { return pass == 0; }
  double pass, each;
};

struct Case {
  LinearCosts costs{1, 0.1};
  std::vector<std::unique_ptr<Drafter>> drafters;
  std::vector<std::vector<DraftPlanner::Bid>> bids;  // by sequence
  double plain = 1, verifying = 1;

  DraftPlanner planner;
  double gain = 0;

  void bid(uint32_t sequence, uint32_t drafter, double rate, uint32_t most, double once = 0) {
    bids.resize(std::max<size_t>(bids.size(), sequence + 1));
    DraftPlanner::Bid b{.drafter = drafter, .most = most, .once = once};
    for (uint32_t i = 0; i < most; ++i) b.reach[i] = std::pow(rate, i + 1);
    bids[sequence].push_back(b);
  }

  std::vector<uint32_t> plan() {
    planner.reserve(static_cast<uint32_t>(bids.size()), static_cast<uint32_t>(drafters.size()));
    planner.clear();
    StepLoad load;
    for (uint32_t s = 0; s < bids.size(); ++s) {
      planner.add_candidate(s, 100);
      costs.add(load, {.rows = 1, .context = 100}, 1);
    }
    for (uint32_t s = 0; s < bids.size(); ++s) {
      for (const auto& b : bids[s]) planner.add_bid(planner.candidates()[s], b);
    }
    gain = planner.plan({.costs = &costs, .load = load, .plain = plain, .verifying = verifying, .margin = 1},
                        drafters);
    std::vector<uint32_t> chosen;
    for (const auto& c : planner.candidates()) chosen.push_back(c.chosen);
    return chosen;
  }

  // Tokens per second of giving each sequence so many guesses of its bid `which`.
  double speed(const std::vector<uint32_t>& guesses, size_t which = 0) const {
    double tokens = static_cast<double>(guesses.size()), seconds = 0;
    uint32_t rows = static_cast<uint32_t>(guesses.size());
    for (size_t s = 0; s < guesses.size(); ++s) {
      rows += guesses[s];
      for (uint32_t i = 0; i < guesses[s]; ++i) tokens += bids[s][which].reach[i];
      if (guesses[s] > 0) seconds += bids[s][which].once;
    }
    const Drafter& d = *drafters[bids[0][which].drafter];
    for (uint32_t pass = 0; pass < Draft::kMost; ++pass) {
      const auto n = static_cast<uint32_t>(
          std::count_if(guesses.begin(), guesses.end(), [&](uint32_t g) { return g > pass; }));
      if (n > 0) seconds += d.seconds(n, 1);
    }
    const bool any = std::any_of(guesses.begin(), guesses.end(), [](uint32_t g) { return g > 0; });
    return tokens / ((costs.first + costs.more * rows) * (any ? verifying : plain) + seconds);
  }

  // The best of all combinations.
  double best_speed() const {
    std::vector<uint32_t> guesses(bids.size(), 0);
    double best = 0;
    for (;;) {
      best = std::max(best, speed(guesses));
      size_t s = 0;
      while (s < guesses.size() && guesses[s] == bids[s][0].most) guesses[s++] = 0;
      if (s == guesses.size()) return best;
      ++guesses[s];
    }
  }
};

TEST(DraftPlanner, FindsTheBestForFreeGuesses) {
  std::mt19937 rng(3);
  for (int i = 0; i < 200; ++i) {
    Case c;
    c.costs = {1, 0.02 + 0.001 * static_cast<double>(rng() % 400)};
    c.drafters.push_back(std::make_unique<Priced>(0, 0));
    for (uint32_t s = 0; s < 3; ++s) c.bid(s, 0, 0.05 + 0.009 * static_cast<double>(rng() % 100), 5);
    const auto chosen = c.plan();
    EXPECT_NEAR(c.speed(chosen), c.best_speed(), 1e-9);
    EXPECT_NEAR(c.gain, std::max(1.0, c.speed(chosen) / c.speed({0, 0, 0})), 1e-9);
  }
}

// One sequence whose drafter costs 0.4 of a step: (1 + .9 + .81 + .729) / (1 + .1 * 4 + 3 * .4) and so on.
TEST(DraftPlanner, PaysForEveryPass) {
  for (const double pass : {0.05, 0.2, 0.4, 0.8}) {
    for (const double rate : {0.3, 0.6, 0.8, 0.9, 0.97}) {
      Case c;
      c.drafters.push_back(std::make_unique<Priced>(pass, 0));
      c.bid(0, 0, rate, 16);
      const auto chosen = c.plan();
      EXPECT_NEAR(c.speed(chosen), c.best_speed(), 1e-9) << pass << ' ' << rate;
      if (pass == 0.8 && rate < 0.7) {
        EXPECT_EQ(chosen[0], 0u);
      }
    }
  }
}

// Four sequences share the passes: paid for by each of them, they would not be worth it.
TEST(DraftPlanner, CountsAPassOnceForAllItsSequences) {
  Case c;
  c.costs = {1, 0.02};
  c.drafters.push_back(std::make_unique<Priced>(0.3, 0));
  for (uint32_t s = 0; s < 4; ++s) c.bid(s, 0, 0.7, 3);
  const auto chosen = c.plan();
  EXPECT_GT(chosen[0], 0u);
  EXPECT_NEAR(c.speed(chosen), c.best_speed(), 1e-9);
  EXPECT_NEAR(c.gain, c.speed(chosen) / c.speed({0, 0, 0, 0}), 1e-9);
  c.drafters[0] = std::make_unique<Priced>(0.001, 0.3);
  EXPECT_EQ(c.plan(), (std::vector<uint32_t>(4, 0)));
}

TEST(DraftPlanner, IsNearTheBestForUnequalSequences) {
  std::mt19937 rng(4);
  for (int i = 0; i < 100; ++i) {
    Case c;
    c.costs = {1, 0.01 + 0.001 * static_cast<double>(rng() % 100)};
    c.drafters.push_back(std::make_unique<Priced>(0.3 * static_cast<double>(rng() % 100) / 100 + 1e-3, 0.02));
    for (uint32_t s = 0; s < 3; ++s) c.bid(s, 0, 0.05 + 0.009 * static_cast<double>(rng() % 100), 5);
    EXPECT_GE(c.speed(c.plan()), 0.97 * c.best_speed());
  }
}

TEST(DraftPlanner, CatchingUpMustPayToo) {
  Case c;
  c.drafters.push_back(std::make_unique<Priced>(0.1, 0));
  c.bid(0, 0, 0.9, 4);
  EXPECT_GT(c.plan()[0], 0u);
  c.bids[0][0].once = 3;
  EXPECT_EQ(c.plan()[0], 0u);
}

// Where a row costs as much as a step, nothing pays.
TEST(DraftPlanner, IsOffWhereStepsAreBoundByArithmetic) {
  Case c;
  c.costs = {0, 1};
  c.drafters.push_back(std::make_unique<Priced>(0, 0));
  for (uint32_t s = 0; s < 4; ++s) c.bid(s, 0, 0.98, 8);
  EXPECT_EQ(c.plan(), (std::vector<uint32_t>(4, 0)));
  EXPECT_EQ(c.gain, 1.0);
}

// The sequence that copies has a free guess; a dear drafter must not be paid for because of it, nor instead.
TEST(DraftPlanner, FreeGuessesAreNotLostToDearOnes) {
  Case c;
  c.drafters.push_back(std::make_unique<Priced>(0, 0));
  c.drafters.push_back(std::make_unique<Priced>(2, 0));
  c.bid(0, 0, 0.6, 4);
  c.bid(0, 1, 0.95, 4);
  c.bid(1, 1, 0.95, 1);
  const auto chosen = c.plan();
  EXPECT_GT(chosen[0], 0u);
  EXPECT_EQ(chosen[1], 0u);
  EXPECT_EQ(c.planner.candidates()[0].drafter, 0u);
}

TEST(DraftPlanner, FollowsHowStepsWithGuessesDiffer) {
  Case c;
  c.drafters.push_back(std::make_unique<Priced>(0, 0));
  c.bid(0, 0, 0.5, 4);
  EXPECT_GT(c.plan()[0], 0u);
  c.verifying = 2;
  EXPECT_EQ(c.plan()[0], 0u);
}

}  // namespace
}  // namespace kvasir
