#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <numeric>

namespace kvasir {
namespace {

// A scheduler with sequences of the test's making; the model is left out.
class SchedulerTest : public testing::Test {
 protected:
  void start(uint32_t blocks, Scheduler::Options options, std::vector<uint32_t> windows = {0},
             bool caching = false) {
    options_ = options;
    std::vector<KvLayerSpec> layers;
    for (const uint32_t w : windows) layers.push_back({1, 8, w});
    layout_ = KvLayout::make(layers, 16).value();
    pool_ = std::make_unique<BlockPool>(blocks);
    cache_ = std::make_unique<PrefixCache>(layout_, *pool_, PrefixCache::Options{caching, 0, 64});
    scheduler_ = std::make_unique<Scheduler>(options, layout_, *pool_, *cache_);
  }

  Sequence& add(uint32_t prompt, TokenId first = 1, uint32_t slots = 1, std::string_view salt = "") {
    std::vector<TokenId> tokens(prompt);
    std::iota(tokens.begin(), tokens.end(), first);
    sequences_.emplace_back(BlockTable(layout_, *pool_, *cache_, salt, options_.max_model_len),
                            std::move(tokens), prompt);
    Sequence& s = sequences_.back();
    s.age = {sequences_.size(), 0};
    s.slots = slots;
    scheduler_->add(s);
    return s;
  }

  // Rows per sequence of the next step; each that has caught up then knows one token more.
  std::vector<uint32_t> step() {
    const SchedulerOutput& plan = scheduler_->plan();
    EXPECT_TRUE(scheduler_->check_integrity().ok()) << scheduler_->check_integrity().message();
    std::vector<uint32_t> rows(sequences_.size(), 0);
    for (const SchedulerOutput::Item& item : plan.items) {
      Sequence& s = *item.sequence;
      rows[s.age.first - 1] = item.rows;
      s.computed += item.rows;
      s.scheduled = 0;
      s.table.commit(s.tokens, s.computed);
      if (s.pending() == 0) s.tokens.push_back(7);
    }
    return rows;
  }
  using Rows = std::vector<uint32_t>;

  Scheduler::Options options_;
  KvLayout layout_;
  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<PrefixCache> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<Sequence> sequences_;
};

TEST_F(SchedulerTest, DecodesFirstThenPromptsByAge) {
  start(100, {8, 20, 20, 400});
  add(10);
  add(30);
  add(5);
  EXPECT_EQ(step(), (Rows{10, 10, 0}));
  EXPECT_EQ(step(), (Rows{1, 19, 0}));
  EXPECT_EQ(step(), (Rows{1, 1, 5}));
  EXPECT_EQ(step(), (Rows{1, 1, 1}));
}

TEST_F(SchedulerTest, OldestPromptGetsARowHoweverManyDecode) {
  start(100, {8, 4, 4, 400});
  Sequence& old = add(100);
  scheduler_->remove(old);
  add(1);
  add(1);
  Sequence& parent = add(1, 1, 2);
  step();
  scheduler_->add(old);  // as after a preemption
  EXPECT_EQ(step(), (Rows{1, 1, 1, 1}));
  sequences_.emplace_back(parent.table.fork(), parent.tokens, parent.prompt_length);
  Sequence& child = sequences_.back();
  child.age = {5, 0};
  child.computed = parent.computed;
  scheduler_->add_fork(parent, child);
  for (uint32_t computed = 2; computed < 20; ++computed) {
    EXPECT_EQ(step(), (Rows{1, 1, 1, 1, 0}));  // four decodes for four rows, but one is kept
    EXPECT_EQ(old.computed, computed);
  }
}

TEST_F(SchedulerTest, BudgetOfLogitRowsHolds) {
  start(100, {8, 64, 3, 400});
  Sequence& scored = add(40);
  scored.score_from = 0;
  add(10);
  for (int i = 0; i < 6; ++i) {
    const SchedulerOutput& plan = scheduler_->plan();
    EXPECT_LE(plan.logit_rows, 3u);
    ASSERT_GE(plan.items.size(), 1u);
    EXPECT_EQ(plan.items[0].logit_rows, plan.items[0].rows);
    for (const SchedulerOutput::Item& item : plan.items) item.sequence->computed += item.rows;
    scored.score_from = scored.computed;
  }
}

TEST_F(SchedulerTest, SlotsBoundTheRunningOnes) {
  start(100, {3, 64, 64, 400});
  add(4);
  add(4, 1, 2);  // will be two
  add(4);
  EXPECT_EQ(step(), (Rows{4, 4, 0}));
  scheduler_->remove(sequences_[0]);
  EXPECT_EQ(step(), (Rows{0, 1, 4}));
}

TEST_F(SchedulerTest, NewRequestJoinsInTheStepAfterAnotherEnds) {
  start(100, {1, 64, 64, 400});
  add(4);
  add(6);
  EXPECT_EQ(step(), (Rows{4, 0}));
  scheduler_->remove(sequences_[0]);
  EXPECT_EQ(step(), (Rows{0, 6}));
}

TEST_F(SchedulerTest, AdmissionLeavesTheRunningOnesTheirNextBlock) {
  start(4, {8, 64, 64, 64});
  add(32);  // two full blocks: its next token takes the third
  add(20);  // two blocks, of which one is promised
  EXPECT_EQ(step(), (Rows{32, 0}));
  EXPECT_EQ(step(), (Rows{1, 0}));
  scheduler_->remove(sequences_[0]);
  EXPECT_EQ(step(), (Rows{0, 20}));
  EXPECT_EQ(scheduler_->counters().preemptions, 0u);
}

TEST_F(SchedulerTest, YoungestIsPreemptedAndReturnsToTheFront) {
  start(6, {8, 64, 64, 96});
  Sequence& a = add(30);
  Sequence& b = add(30);
  Sequence& c = add(14);  // 2 + 2 + 1 blocks
  step();
  while (scheduler_->counters().preemptions == 0) step();
  EXPECT_EQ(c.state, Sequence::State::kWaiting);
  EXPECT_EQ(c.computed, 0u);
  add(1);
  EXPECT_EQ(scheduler_->waiting().front(), &c);
  EXPECT_EQ(a.state, Sequence::State::kRunning);
  EXPECT_EQ(b.state, Sequence::State::kRunning);
  scheduler_->remove(b);
  step();
  EXPECT_EQ(c.state, Sequence::State::kRunning);
}

// Else it would be the next to go again.
TEST_F(SchedulerTest, PreemptedOneComesBackOnlyWhenAllCanGrow) {
  start(20, {16, 400, 64, 320});
  for (int i = 0; i < 10; ++i) add(4);
  step();
  Sequence& back = add(70);  // 5 blocks of the 10 that are free
  back.admitted_before = true;
  EXPECT_EQ(step()[10], 0u);
  for (size_t i = 0; i < 5; ++i) scheduler_->remove(sequences_[i]);
  EXPECT_EQ(step()[10], 70u);
}

TEST_F(SchedulerTest, CachedBlocksAreGivenUpBeforeAnybodyIsPreempted) {
  start(6, {8, 64, 64, 96}, {0}, true);
  add(60);
  step();
  scheduler_->remove(sequences_[0]);
  EXPECT_EQ(pool_->cached(), 3u);
  add(80, 500);
  EXPECT_EQ(step()[1], 64u);
  EXPECT_EQ(step()[1], 16u);
  EXPECT_EQ(scheduler_->counters().preemptions, 0u);
  EXPECT_EQ(pool_->cached(), 1u);  // the other two had to make way
}

TEST_F(SchedulerTest, WaitsForBlocksThatAnotherIsComputing) {
  start(100, {8, 32, 32, 400}, {0}, true);
  add(100);
  Sequence& follower = add(90);
  EXPECT_EQ(step(), (Rows{32, 0}));
  EXPECT_EQ(step(), (Rows{32, 0}));
  EXPECT_EQ(step(), (Rows{32, 0}));
  EXPECT_EQ(step(), (Rows{4, 10}));  // five blocks are whole blocks of both
  EXPECT_EQ(follower.cached_tokens, 80u);
  EXPECT_EQ(scheduler_->counters().prefix_hits, 80u);
  EXPECT_EQ(scheduler_->counters().prefix_queries, 190u);
}

TEST_F(SchedulerTest, WhoSharesNothingDoesNotWait) {
  start(100, {8, 32, 32, 400}, {0}, true);
  add(20);
  add(90, 1000);
  EXPECT_EQ(step(), (Rows{20, 12}));
}

TEST_F(SchedulerTest, SaltsKeepEqualPromptsApart) {
  start(100, {8, 200, 32, 400}, {0}, true);
  add(90);
  add(90, 1, 1, "another user");
  add(90);
  EXPECT_EQ(step(), (Rows{90, 90, 0}));
  EXPECT_EQ(step(), (Rows{1, 1, 10}));
}

// Steps that take 1 ms, 1 ms per row and 1 us per row and token before it.
class ScriptedCosts final : public StepCosts {
 public:
  void add(StepLoad& load, const StepRows& s, LogitRows logits) const override {
    load.rows += s.rows;
    load.logits.rows += logits.rows;
    load.attention[0].all += 1e-6 * s.rows * s.context;
  }
  double seconds(const StepLoad& load) const override {
    return 1e-3 * (1 + load.rows) + load.attention[0].all;
  }
};

class PacedScheduler : public SchedulerTest {
 protected:
  // Starts with so many sequences that decode, of one block each.
  void decode(uint32_t sequences, double max_gap, bool caching = false) {
    start(200, {16, 256, 64, 2000, &costs_, max_gap}, {0}, caching);
    for (uint32_t i = 0; i < sequences; ++i) add(4, static_cast<TokenId>(1000 * (i + 1)));
    step();
  }
  ScriptedCosts costs_;
};

TEST_F(PacedScheduler, NobodyDecodesSoTheWholeBudgetIsUsed) {
  decode(0, 0.02);
  add(1000);
  EXPECT_EQ(step(), (Rows{256}));
  EXPECT_EQ(scheduler_->target_seconds(), 0);
}

// Two decodes at position 4: 3.008 ms. 40 ms leave room for 36 rows of a new prompt; later rows cost more.
TEST_F(PacedScheduler, PromptRowsKeepTheStepWithinTheGap) {
  decode(2, 0.040);
  add(1000);
  EXPECT_EQ(step(), (Rows{1, 1, 36}));
  EXPECT_EQ(scheduler_->target_seconds(), 0.040);
  EXPECT_EQ(step(), (Rows{1, 1, 35}));  // (1 + 0.036) ms each
  scheduler_->remove(sequences_[2]);
  EXPECT_EQ(step(), (Rows{1, 1, 0}));
}

TEST_F(PacedScheduler, WhatTheFirstPromptLeavesGoesToTheNext) {
  decode(1, 0.060);
  add(30);
  add(1000);
  EXPECT_EQ(step(), (Rows{1, 30, 27}));  // 1 + 1 + 30 + 27 ms and a little
  EXPECT_EQ(step(), (Rows{1, 1, 55}));   // the first now decodes; 55 rows after 27 tokens take 56.5 ms
}

TEST_F(PacedScheduler, APromptGetsABlockHoweverShortTheGap) {
  decode(3, 0.001);
  add(100);
  add(100, 5000);
  EXPECT_EQ(step(), (Rows{1, 1, 1, 16, 0}));
  EXPECT_EQ(step(), (Rows{1, 1, 1, 16, 0}));
  for (int i = 0; i < 20; ++i) step();
  EXPECT_EQ(sequences_[3].pending(), 1u);  // both came to an end
  EXPECT_EQ(sequences_[4].pending(), 1u);
}

TEST_F(PacedScheduler, WithoutAGapItIsChosenFromTheDecodes) {
  decode(2, 0);
  add(1000);
  EXPECT_EQ(step(), (Rows{1, 1, 46}));  // 50 ms, for three times 3 ms are less
  EXPECT_EQ(scheduler_->target_seconds(), Scheduler::kLeastGap);
}

// Rows that take another 1 ms where they want logits.
class HeadCosts final : public StepCosts {
 public:
  void add(StepLoad& load, const StepRows& s, LogitRows logits) const override {
    load.rows += s.rows;
    load.logits.rows += logits.rows;
  }
  double seconds(const StepLoad& load) const override { return 1e-3 * (1 + load.rows + load.logits.rows); }
};

// Two decodes: 5 ms. Each row of a prompt that is scored takes 2 of the 35 ms that are left.
TEST_F(PacedScheduler, RowsThatAreScoredTakeTheirLogitsTime) {
  const HeadCosts costs;
  start(200, {16, 256, 256, 2000, &costs, 0.040});
  add(4);
  add(4, 1000);
  step();
  add(1000).score_from = 0;
  EXPECT_EQ(step(), (Rows{1, 1, 17}));
  sequences_[2].score_from = Sequence::kNothing;
  EXPECT_EQ(step(), (Rows{1, 1, 34}));  // but for the one that a last row would take
}

TEST_F(PacedScheduler, ManyDecodesStretchTheChosenGap) {
  start(200, {100, 256, 256, 2000, &costs_, 0});
  for (uint32_t i = 0; i < 30; ++i) add(4, static_cast<TokenId>(1000 * (i + 1)));
  step();
  add(1000);
  EXPECT_EQ(step()[30], 62u);  // three times 31.12 ms are 93.36, and each row takes 1
  EXPECT_NEAR(scheduler_->target_seconds(), 0.09336, 1e-9);
}

}  // namespace
}  // namespace kvasir
