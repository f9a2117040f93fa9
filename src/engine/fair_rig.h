#pragma once

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "engine/scheduler.h"

namespace kvasir {

// Steps that take 1 ms, 1 ms per sequence that decodes and 0.1 ms per other row.
class VirtualCosts final : public StepCosts {
 public:
  void add(StepLoad& load, const StepRows& s, LogitRows logits) const override {
    load.rows += s.rows;
    load.logits.rows += logits.rows;
    load.attention[0].all += s.rows == 1 ? 1e-3 : 1e-4 * s.rows;
  }
  double seconds(const StepLoad& load) const override { return 1e-3 + load.attention[0].all; }
};

inline KvLayout one_layer(uint32_t block_size) {
  const KvLayerSpec layer{1, 8, 0};
  return KvLayout::make({&layer, 1}, block_size).value();
}

// The real scheduler without a model: a virtual clock that the costs move, and sequences that generate
// `output` tokens each after their prompt, and then are gone.
class FairRig : public testing::Test {
 protected:
  struct Job {
    Job(BlockTable table, std::vector<TokenId> tokens, uint32_t prompt, uint32_t more, double now)
        : sequence(std::move(table), std::move(tokens), prompt), output(more), arrived(now) {}
    Sequence sequence;
    uint32_t output;
    double arrived;
    double first_token = -1, finished = -1;
  };

  void start(Scheduler::Options options, uint32_t blocks = 1000) {
    options_ = options;
    options_.max_model_len = 8000;
    layout_ = one_layer(16);
    pool_ = std::make_unique<BlockPool>(blocks);
    cache_ = std::make_unique<PrefixCache>(layout_, *pool_, PrefixCache::Options{true, 0, 64});
    scheduler_ = std::make_unique<Scheduler>(options_, layout_, *pool_, *cache_);
  }

  Job& add(const std::string& user, uint32_t prompt, uint32_t output, int32_t priority = 0,
           double weight = 1) {
    std::vector<TokenId> tokens(prompt);
    std::iota(tokens.begin(), tokens.end(), static_cast<TokenId>(jobs_.size() * 10'000));
    tokens.reserve(prompt + output);
    Job& job = jobs_.emplace_back(BlockTable(layout_, *pool_, *cache_, "", prompt + output),
                                  std::move(tokens), prompt, output, now_);
    job.sequence.age = {jobs_.size(), 0};
    job.sequence.priority = priority;
    job.sequence.user = scheduler_->find_user(user, weight);
    scheduler_->add(job.sequence);
    return job;
  }

  // Plans, computes and commits a step; the clock moves on.
  void step() {
    const Sequence* oldest = scheduler_->running().empty() ? nullptr : scheduler_->running().front();
    const uint32_t before = oldest != nullptr ? oldest->computed : 0;
    const SchedulerOutput& plan = scheduler_->plan();
    const Status status = scheduler_->check_integrity();
    ASSERT_TRUE(status.ok()) << status.message();
    StepLoad load;
    for (const SchedulerOutput::Item& item : plan.items)
      costs_.add(load, {.rows = item.rows, .context = item.sequence->computed}, item.logit_rows);
    now_ += costs_.seconds(load);
    last_rows_ = plan.rows;
    for (const SchedulerOutput::Item& item : plan.items) commit(*item.sequence, item.rows);
    if (oldest != nullptr) {
      ASSERT_NE(oldest->state, Sequence::State::kWaiting) << "the oldest was preempted";
      ASSERT_TRUE(oldest->state == Sequence::State::kFinished || oldest->computed > before);
    }
  }
  void commit(Sequence& s, uint32_t rows) {
    Job& job = jobs_[s.age.first - 1];
    served_[s.user] += rows;
    s.computed += rows;
    s.scheduled = 0;
    s.table.commit(s.tokens, s.computed);
    if (s.pending() > 0) return;
    if (job.first_token < 0) job.first_token = now_;
    s.tokens.push_back(7);
    if (s.known() - s.prompt_length < job.output) return;
    job.finished = now_;
    scheduler_->remove(s);
  }
  void run(int most_steps = 100'000) {
    for (int i = 0; scheduler_->has_work() && !HasFatalFailure(); ++i) {
      ASSERT_LT(i, most_steps) << "no end";
      step();
    }
  }
  static bool running(const Job& job) { return job.sequence.state == Sequence::State::kRunning; }
  static bool waiting(const Job& job) { return job.sequence.state == Sequence::State::kWaiting; }

  VirtualCosts costs_;
  Scheduler::Options options_;
  KvLayout layout_;
  std::unique_ptr<BlockPool> pool_;
  std::unique_ptr<PrefixCache> cache_;
  std::unique_ptr<Scheduler> scheduler_;
  std::deque<Job> jobs_;
  std::map<uint32_t, uint64_t> served_;  // rows by user
  double now_ = 0;
  uint32_t last_rows_ = 0;
};

}  // namespace kvasir
