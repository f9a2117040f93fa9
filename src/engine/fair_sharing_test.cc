// Who goes first: priorities, ageing, who makes place for whom, and streams that flow meanwhile.

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <string>

#include "engine/fair_rig.h"

namespace kvasir {
namespace {

using FairSharing = FairRig;

TEST_F(FairSharing, OneUsersRequestsGoByPriorityThenAge) {
  start({1, 64, 64});
  Job& running = add("", 10, 5);
  step();
  Job& late = add("", 10, 5, 3);
  Job& normal = add("", 10, 5);
  Job& early = add("", 10, 5, -2);
  Job& second_normal = add("", 10, 5);
  EXPECT_EQ(scheduler_->queue().by_class(), (std::array<uint32_t, 3>{1, 2, 1}));
  run();
  EXPECT_LT(running.finished, early.finished);
  EXPECT_LT(early.finished, normal.finished);
  EXPECT_LT(normal.finished, second_normal.finished);
  EXPECT_LT(second_normal.finished, late.finished);
}

TEST_F(FairSharing, PromptRowsGoToTheBetterPriorityButAnEighthToTheOldest) {
  start({8, 64, 64});
  Job& low = add("", 400, 5, 5);
  step();
  EXPECT_EQ(low.sequence.computed, 64u);
  Job& high = add("", 400, 5, -5);
  step();
  EXPECT_EQ(low.sequence.computed, 64u + 8);
  EXPECT_EQ(high.sequence.computed, 56u);
  while (high.first_token < 0) step();
  step();
  EXPECT_GT(low.sequence.computed, 64u + 8 * 7);
  EXPECT_LT(low.first_token, 0);
  run();
}

TEST_F(FairSharing, WhatTheOthersLeaveGoesToTheOldest) {
  start({8, 64, 64});
  Job& low = add("", 400, 5, 5);
  step();
  Job& high = add("", 20, 5);
  step();
  EXPECT_GE(high.first_token, 0);
  EXPECT_EQ(low.sequence.computed, 64u + 44);
}

// The pool is full: the worst priority goes, whatever its age, and among equals the youngest.
TEST_F(FairSharing, TheYoungestOfTheWorstPriorityIsPreempted) {
  start({8, 200, 64}, 12);
  Job& oldest = add("", 30, 100, 9);
  Job& low = add("", 30, 100, 5);
  Job& normal = add("", 30, 100);
  Job& young = add("", 30, 100);
  step();
  while (scheduler_->counters().preemptions == 0) step();
  EXPECT_TRUE(running(oldest));
  EXPECT_TRUE(waiting(low));
  EXPECT_TRUE(running(normal));
  EXPECT_TRUE(running(young));
  while (scheduler_->counters().preemptions == 1) step();
  EXPECT_TRUE(waiting(young));
  run();
}

TEST_F(FairSharing, BetterPriorityTakesASlotFromTheWorst) {
  start({3, 200, 64});
  Job& oldest = add("", 30, 100, 5);
  Job& low = add("", 30, 100, 5);
  Job& lower = add("", 30, 100, 6);
  step();
  Job& normal = add("", 30, 10);
  step();
  EXPECT_TRUE(running(normal));
  EXPECT_TRUE(waiting(lower));
  EXPECT_TRUE(running(low));
  Job& equal = add("", 30, 10, 5);
  step();
  EXPECT_TRUE(waiting(equal));
  run();
  EXPECT_LT(normal.finished, oldest.finished);
  EXPECT_GT(lower.finished, 0);
}

// 30 requests of better priority for each place that comes free, without end.
TEST_F(FairSharing, WorsePriorityIsOvertakenEightTimesAndNotMore) {
  start({2, 64, 64});
  add("", 10, 40, -1);
  add("", 10, 40, -1);
  step();
  Job& low = add("", 10, 40, 1000);
  std::deque<Job*> others;
  for (int i = 0; low.finished < 0; ++i) {
    ASSERT_LT(i, 2000);
    while (scheduler_->queue().size() < 5) others.push_back(&add("", 10, 40, -1));
    step();
  }
  const auto before = std::count_if(others.begin(), others.end(), [&](Job* j) {
    return j->finished > 0 && j->first_token < low.first_token;
  });
  EXPECT_GE(before, 6);
  EXPECT_LE(before, 8);  // admitted before; those that run when it is let in may read their prompts before it
  EXPECT_TRUE(low.sequence.urgent);
}

TEST_F(FairSharing, FirstRequestOfAUserDoesNotWaitForAnothersFlood) {
  start({4, 64, 64, 0, &costs_});
  for (int i = 0; i < 100; ++i) add("flood", 200, 400);
  for (int i = 0; i < 60; ++i) step();
  ASSERT_EQ(scheduler_->running().size(), 4u);
  ASSERT_GT(scheduler_->queue().size(), 90u);
  const double asked = now_;
  Job& first = add("guest", 100, 20);
  step();
  EXPECT_TRUE(running(first));
  EXPECT_EQ(scheduler_->counters().preemptions, 1u);
  while (first.first_token < 0) step();
  // Its two chunks of 50 and 50 rows beside three decodes, and not one answer of 400 tokens.
  EXPECT_LT(first.first_token - asked, 0.05);
  while (first.finished < 0) step();
  EXPECT_LT(first.finished - asked, 0.4);
  run();
  EXPECT_LE(scheduler_->counters().preemptions, 2u);
}

TEST_F(FairSharing, FirstRequestOfAUserTakesBlocksFromAnothersSeveral) {
  start({8, 256, 64}, 40);  // 640 tokens
  for (int i = 0; i < 10; ++i) add("flood", 120, 60);
  step();
  step();
  const size_t before = scheduler_->running().size();
  ASSERT_GE(before, 4u);
  Job& first = add("guest", 200, 10);
  step();
  EXPECT_TRUE(running(first));
  EXPECT_LT(scheduler_->running().size(), before);
  EXPECT_TRUE(running(jobs_[0]));  // the oldest stays
  run();
  for (const Job& job : jobs_) EXPECT_GT(job.finished, 0);
}

TEST_F(FairSharing, NobodyIsDisplacedInVain) {
  start({8, 256, 64}, 40);
  for (int i = 0; i < 6; ++i) add("flood", 100, 20);
  step();
  Job& large = add("guest", 600, 2);  // as large as the pool; the oldest is in the way
  const size_t before = scheduler_->running().size();
  step();
  EXPECT_TRUE(waiting(large));
  EXPECT_EQ(scheduler_->running().size(), before);
  EXPECT_EQ(scheduler_->counters().preemptions, 0u);
  run();
  EXPECT_GT(large.finished, 0);
}

TEST_F(FairSharing, AStreamFlowsWhileALongPromptIsRead) {
  constexpr double kMaxGap = 0.02;
  start({8, 512, 64, 0, &costs_, kMaxGap});
  Job& stream = add("", 10, 200);
  step();
  Job& prompt = add("", 4000, 1);
  int steps = 0;
  while (prompt.first_token < 0) {
    const uint32_t known = stream.sequence.known();
    const double clock = now_;
    step();
    ++steps;
    EXPECT_EQ(stream.sequence.known(), known + 1) << "the stream waited for the prompt";
    EXPECT_LE(now_ - clock, kMaxGap + 1e-9);
  }
  // 1 ms, 1 ms of the stream, and 180 rows of 0.1 ms: as many as the gap allows.
  EXPECT_EQ(steps, 23);
}

TEST_F(FairSharing, AStreamFlowsWhileManyReadPrompts) {
  constexpr double kMaxGap = 0.02;
  start({16, 512, 64, 0, &costs_, kMaxGap});
  Job& stream = add("", 10, 2000);
  step();
  for (int i = 0; i < 12; ++i)
    add(std::string(1, static_cast<char>('a' + i % 4)), 500 + 50 * i, 5, i % 3 - 1);
  while (scheduler_->running().size() + scheduler_->queue().size() > 1) {
    const uint32_t known = stream.sequence.known();
    const double clock = now_;
    step();
    EXPECT_EQ(stream.sequence.known(), known + 1);
    EXPECT_LE(now_ - clock, kMaxGap + 1e-9);
  }
}

}  // namespace
}  // namespace kvasir
