// How far apart users' service can get, what is charged, and who is remembered.

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "engine/fair_rig.h"

namespace kvasir {
namespace {

using FairService = FairRig;

// Sheng et al., theorem on two backlogged clients: |W1 - W2| <= 2 * U, U = output price * tokens of the
// running batch. One has ten times the requests of the other, longer prompts, and was first.
TEST_F(FairService, TwoUsersWhoAlwaysWaitAreServedAlike) {
  constexpr uint32_t kBlocks = 200;
  start({8, 128, 64, 0, &costs_}, kBlocks);
  const uint32_t a = scheduler_->find_user("a"), b = scheduler_->find_user("b");
  const double u = scheduler_->queue().prices().output * kBlocks * 16;
  double largest = 0, from = 0;
  uint64_t rows = 0, steps = 0;
  for (int i = 0; i < 20; ++i) add("a", 200 + 10 * (i % 7), 60);
  for (int i = 0; i < 300; ++i) step();
  for (int i = 0; i < 12'000 && !HasFatalFailure(); ++i) {
    while (std::count_if(jobs_.begin(), jobs_.end(),
                         [&](Job& j) { return waiting(j) && j.sequence.user == a; }) < 20)
      add("a", 200 + 10 * (i % 7), 60);
    while (std::count_if(jobs_.begin(), jobs_.end(),
                         [&](Job& j) { return waiting(j) && j.sequence.user == b; }) < 2)
      add("b", 20 + i % 5, 90);
    if (i == 0) from = scheduler_->queue().service(a) - scheduler_->queue().service(b);
    step();
    rows += last_rows_;
    ++steps;
    largest =
        std::max(largest, std::abs(scheduler_->queue().service(a) - scheduler_->queue().service(b) - from));
  }
  EXPECT_LE(largest, 2 * u);
  EXPECT_LE(std::abs(from), 2 * u);
  EXPECT_GT(scheduler_->queue().service(a), 10 * u) << "too short to show anything";
  // Work-conserving: eight run at all times, or the budget of rows is used.
  EXPECT_GE(static_cast<double>(rows) / static_cast<double>(steps), 8.0);
  RecordProperty("largest_difference_over_U", std::to_string(largest / u));
}

TEST_F(FairService, AUserOfTwiceTheWeightGetsTwiceTheService) {
  start({4, 128, 64, 0, &costs_}, 200);
  const uint32_t a = scheduler_->find_user("a", 2), b = scheduler_->find_user("b", 1);
  for (int i = 0; i < 4000 && !HasFatalFailure(); ++i) {
    while (std::count_if(jobs_.end() - static_cast<ptrdiff_t>(std::min<size_t>(jobs_.size(), 60)),
                         jobs_.end(), [&](Job& j) { return waiting(j) && j.sequence.user == a; }) < 4)
      add("a", 50, 30, 0, 2);
    while (std::count_if(jobs_.end() - static_cast<ptrdiff_t>(std::min<size_t>(jobs_.size(), 60)),
                         jobs_.end(), [&](Job& j) { return waiting(j) && j.sequence.user == b; }) < 4)
      add("b", 50, 30, 0, 1);
    step();
  }
  const double ratio = static_cast<double>(served_[a]) / static_cast<double>(served_[b]);
  EXPECT_NEAR(ratio, 2, 0.1);
}

TEST_F(FairService, IdlenessEarnsNoCredit) {
  start({1, 64, 64});
  for (int i = 0; i < 10; ++i) add("busy", 50, 50);
  for (int i = 0; i < 300; ++i) step();
  const uint32_t idle = scheduler_->find_user("idle"), busy = scheduler_->find_user("busy");
  EXPECT_EQ(scheduler_->queue().service(idle), 0);
  add("idle", 50, 50);
  EXPECT_EQ(scheduler_->queue().service(idle), scheduler_->queue().service(busy));
  run();
  // Nobody waits any more: the next newcomer starts where the last to leave stands.
  add("newcomer", 5, 1);
  EXPECT_GE(scheduler_->queue().service(scheduler_->find_user("newcomer")),
            scheduler_->queue().service(busy));
}

TEST_F(FairService, CachedPromptTokensAreFree) {
  start({8, 256, 64}, 100);
  add("a", 160, 1);
  run();
  const uint32_t a = scheduler_->find_user("a");
  EXPECT_EQ(scheduler_->queue().service(a), 160);
  jobs_.pop_back();  // so that the next prompt is the same
  Job& again = add("a", 160, 1);
  run();
  EXPECT_EQ(again.sequence.cached_tokens, 159u);
  EXPECT_EQ(scheduler_->queue().service(a), 161);
}

TEST_F(FairService, WhatAPreemptionMakesUsComputeAgainIsNotCharged) {
  start({8, 200, 64}, 8);
  add("b", 60, 40);
  Job& victim = add("c", 40, 40);
  run();
  EXPECT_GT(scheduler_->counters().preemptions, 0u);
  EXPECT_GT(victim.finished, 0);
  // 40 tokens of the prompt, and 39 of the answer: the last is not computed.
  EXPECT_EQ(scheduler_->queue().service(scheduler_->find_user("c")), 40 + 2 * 39);
}

TEST_F(FairService, UsersAreForgottenWhenTheyAreMany) {
  start({8, 256, 64});
  const uint32_t kept = scheduler_->find_user("kept");
  Job& waits = add("kept", 10, 5);
  for (uint32_t i = 0; i < 3 * FairQueue::kKnownUsers; ++i)
    EXPECT_LT(scheduler_->find_user("user " + std::to_string(i)), FairQueue::kKnownUsers);
  EXPECT_EQ(scheduler_->find_user("kept"), kept);
  EXPECT_EQ(scheduler_->find_user(""), 0u);
  run();
  EXPECT_GT(waits.finished, 0);
}

TEST(TokenPrices, FollowWhatStepsCost) {
  // A row of 100 of a prompt takes (1 + 10) / 100 ms, a decode among 8 (1 + 8) / 8: ten times as much.
  const TokenPrices prices = TokenPrices::of(VirtualCosts(), 100, 8, 500);
  EXPECT_EQ(prices.prompt, 1);
  EXPECT_NEAR(prices.output, 1.125 / 0.11, 1e-9);
  EXPECT_EQ(TokenPrices::of(VirtualCosts(), 100, 1, 500).output, TokenPrices::kMostOutput);  // 2 / 0.11
}

}  // namespace
}  // namespace kvasir
