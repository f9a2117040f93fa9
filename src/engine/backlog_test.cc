#include "engine/backlog.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <numeric>

namespace kvasir {
namespace {

// Steps take 4 ms, and 1 ms per row.
class LinearCosts final : public StepCosts {
 public:
  void add(StepLoad& load, const StepRows& s, LogitRows) const override { load.rows += s.rows; }
  double seconds(const StepLoad& load) const override { return 1e-3 * (4 + load.rows); }
};

KvLayout one_layer(uint32_t block_size) {
  const KvLayerSpec layer{1, 8, 0};
  return KvLayout::make({&layer, 1}, block_size).value();
}

class Backlog : public testing::Test {
 protected:
  Backlog() {
    scheduler_ = std::make_unique<Scheduler>(Scheduler::Options{2, 40, 40, 1000}, layout_, pool_, cache_);
  }
  Sequence& add(uint32_t prompt, double most_output, uint32_t slots = 1) {
    std::vector<TokenId> tokens(prompt);
    std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(1000 * sequences_.size()));
    Sequence& s =
        sequences_.emplace_back(BlockTable(layout_, pool_, cache_, "", 1000), std::move(tokens), prompt);
    s.age = {sequences_.size(), 0};
    s.slots = slots;
    s.most_output = most_output;
    scheduler_->add(s);
    return s;
  }

  KvLayout layout_ = one_layer(16);
  BlockPool pool_{100};
  PrefixCache cache_{layout_, pool_, {false, 0, 64}};
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<Sequence> sequences_;
  LinearCosts costs_;
};

TEST_F(Backlog, IsPromptRowsAndExpectedTokensAtTheirPrices) {
  BacklogForecast forecast(&costs_, 40, 2);
  EXPECT_EQ(forecast.estimate(*scheduler_).all, 0);
  add(100, 50);
  add(60, 1000);   // 128 are expected
  add(20, 10, 2);  // 10 for both together
  // A row of 40 takes 44 / 40 ms, a token beside another 6 / 2 ms.
  const BacklogForecast::Seconds all = forecast.estimate(*scheduler_);
  EXPECT_NEAR(all.all, 1e-3 * (180 * 1.1 + (50 + 128 + 10) * 3), 1e-9);
  EXPECT_EQ(all.waiting, all.all);
  scheduler_->plan();  // the first runs; 40 of its rows are planned, but not computed
  const BacklogForecast::Seconds later = forecast.estimate(*scheduler_);
  EXPECT_NEAR(later.all, all.all, 1e-9);
  const double running = 1e-3 * (100 * 1.1 + 50 * 3);
  EXPECT_NEAR(later.waiting, all.all - running + running / 2, 1e-9);
  for (Sequence& s : sequences_) scheduler_->remove(s);
  EXPECT_EQ(forecast.estimate(*scheduler_).all, 0);
}

TEST_F(Backlog, LearnsHowLongAnswersAre) {
  BacklogForecast forecast(&costs_, 40, 2);
  for (int i = 0; i < 200; ++i) forecast.on_answer(20);
  EXPECT_NEAR(forecast.mean_answer(), 20, 0.1);
  add(10, 1000);
  EXPECT_NEAR(forecast.estimate(*scheduler_).all, 1e-3 * (10 * 1.1 + 20 * 5), 1e-3);
}

TEST_F(Backlog, GoesByRecentStepsWhereNothingIsPredicted) {
  BacklogForecast forecast(nullptr, 40, 2);
  add(50, 30);
  EXPECT_EQ(forecast.estimate(*scheduler_).all, 0);  // nothing is known yet
  forecast.on_step(10, 0.2);
  EXPECT_NEAR(forecast.estimate(*scheduler_).all, 80 * 0.02, 1e-9);
  for (int i = 0; i < 200; ++i) forecast.on_step(10, 0.1);
  EXPECT_NEAR(forecast.estimate(*scheduler_).all, 80 * 0.01, 1e-3);
}

TEST_F(Backlog, EstimatesNeitherDriftNorGrowWithTheQueuesPast) {
  BacklogForecast forecast(&costs_, 40, 2);
  for (uint32_t i = 0; i < 500; ++i) scheduler_->remove(add(1 + i % 300, i));
  EXPECT_EQ(forecast.estimate(*scheduler_).all, 0);
  add(40, 1);
  EXPECT_NEAR(forecast.estimate(*scheduler_).all, 0.044 + 0.005, 1e-9);
}

}  // namespace
}  // namespace kvasir
