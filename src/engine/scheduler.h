#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/fair_queue.h"
#include "engine/sequence.h"
#include "engine/shared_rows.h"
#include "kvcache/block_pool.h"
#include "kvcache/block_table.h"
#include "kvcache/kv_layout.h"
#include "kvcache/prefix_cache.h"
#include "perf/perf_model.h"

namespace kvasir {

// What one step computes: which sequences, how many rows each, and the block copies to make first.
struct SchedulerOutput {
  struct Item {
    Sequence* sequence = nullptr;
    uint32_t rows = 0;
    uint32_t first_logit_row = 0;  // of logit_rows consecutive ones; they belong to the last rows of the item
    uint32_t logit_rows = 0;
  };
  std::vector<Item> items;
  std::vector<BlockCopy> copies;
  uint32_t rows = 0;
  uint32_t logit_rows = 0;
};

// Decides who computes what in each step. Policy:
//  - Running sequences with one token to compute (decodes) each get their row, oldest first, and never wait
//    for a prompt.
//  - Prompts share what is left of the token budget, those of running sequences and those of waiting ones
//    alike, in the order of FairQueue::before(): priority, service of their users so far, age. So a user who
//    comes anew does not wait for all that another has begun.
//  - The oldest running sequence always advances: a kOldestShare-th of the prompt rows is its own, one at
//    least, whatever comes before it in that order.
//  - Where the time of steps can be predicted and somebody decodes, prompts get only as many rows as keep the
//    step within max_gap, so that running answers flow; but always a block of rows, so that prompts come to
//    an end.
//  - A waiting sequence is admitted when it is next in that order and there are budget, a free slot and room
//    for all it knows, beside what the running ones still need for theirs. Its longest cached prefix is not
//    computed again; where a running sequence is about to compute more of it, it waits for those blocks, and
//    others may go before it. Who does not fit holds up those behind it, so that large ones get in, too.
//  - It may take the place of running ones, the youngest of the worst priority first, that have worse
//    priority, or the same where its user runs nothing and theirs two or more. So a user's first request
//    waits for no other user's answers. What is preempted is computed again later, mostly from cached blocks,
//    which gives the same tokens.
//  - When the pool is empty, cached blocks are given up first (by the pool); then the youngest of the worst
//    priority is preempted. The oldest is never preempted.
// Nothing starves: the oldest runs to its end, and FairQueue's ageing lets everybody become the oldest.
// Allocates nothing in steady state; a step looks at each running sequence and each user who waits, not at
// each waiting sequence. Not thread-safe.
class Scheduler {
 public:
  struct Options {
    uint32_t max_num_seqs = 64;
    uint32_t max_num_batched_tokens = 256;
    uint32_t max_logit_rows = 256;
    uint32_t max_model_len = 0;
    const StepCosts* costs =
        nullptr;         // what steps take; outlives the scheduler. Null: only the budget counts
    double max_gap = 0;  // seconds; 0: kLeastGap, or kGapDecodes times what the decodes alone take
  };
  static constexpr double kLeastGap = 0.05;
  static constexpr double kGapDecodes = 3;
  static constexpr uint32_t kOldestShare = 8;
  struct Counters {
    uint64_t preemptions = 0;
    uint64_t prefix_queries = 0;  // tokens of sequences admitted for the first time,
    uint64_t prefix_hits = 0;     // and how many of them the prefix cache served
  };
  Scheduler(const Options& options, const KvLayout& layout, BlockPool& pool, PrefixCache& cache);

  // The user of that name, for Sequence::user; see FairQueue.
  uint32_t find_user(std::string_view name, double weight = 1) { return queue_.find_user(name, weight); }

  // A new sequence; it must fit the pool alone. It stays where it is until remove().
  void add(Sequence& sequence);
  // A sequence that shares its computed blocks with a running one, and its user and priority, and runs from
  // now on, in one of that one's slots.
  void add_fork(Sequence& parent, Sequence& child);
  // It has finished or was cancelled: forgets it and releases its blocks.
  void remove(Sequence& sequence);

  // The next step. When there is work and the scheduler is sound it has at least one row; none is a stall,
  // and start_over() may end it. Valid until the next call. Drafts of running sequences get rows behind their
  // one pending token where there is room; what gets none is dropped from them.
  const SchedulerOutput& plan();
  // Of the drafts in the plan, less has become known than they had room for: gives the rows back.
  const SchedulerOutput& trim_drafts();

  // Preempts every running sequence, and nobody waits for another any more.
  void start_over();

  bool has_work() const { return !running_.empty() || queue_.size() > 0; }
  const std::vector<Sequence*>& running() const { return running_; }  // oldest first
  const FairQueue& queue() const { return queue_; }
  std::vector<Sequence*> waiting() const;  // oldest first; made for each call
  const Counters& counters() const { return counters_; }
  // The most seconds that the step planned last was to take; 0 where nothing limited it.
  double target_seconds() const { return target_seconds_; }

  // Ages, states and reference counts agree with the lists and the pool; waiting sequences own nothing.
  // `lent`: blocks that somebody beside the sequences owns (in simulations, where allocations fail).
  Status check_integrity(std::span<const BlockId> lent = {}) const;

 private:
  bool schedule(Sequence& s, uint32_t rows, uint32_t least = 0);
  void set_target();
  uint32_t rows_in_time(uint32_t context, uint32_t rows, uint32_t unscored = UINT32_MAX) const;
  void account(const Sequence& s);
  void account_all();
  void schedule_drafts();
  uint32_t rows_within_budget(const Sequence& s, uint32_t rows) const;
  uint32_t rows_that_fit(const Sequence& s, uint32_t first, uint32_t rows, uint32_t blocks) const;
  void schedule_decodes();
  void schedule_prompts();
  void advance(Sequence& prompt);
  void hold_rows_for_oldest(uint32_t rows);
  uint32_t release_held_rows();
  uint32_t rows_to_hold() const;
  Sequence* first_prompt() const;
  void preempt(Sequence& s);
  Sequence* to_preempt() const;

  bool admit(Sequence& s);
  bool make_place(const Sequence& s, PrefixCache::Hit* hit);
  bool place_within_reach(const Sequence& s, const PrefixCache::Hit& hit) const;
  bool may_displace(const Sequence& s, const Sequence& other) const;
  Sequence* to_displace(const Sequence& s) const;
  void rejoin_followers();
  bool follows_leader(Sequence& s, const PrefixCache::Hit& hit);
  PrefixCache::Hit look_up(const Sequence& s) const;
  uint64_t blocks_to_admit(const Sequence& s, const PrefixCache::Hit& hit) const;
  uint32_t blocks_promised() const;
  uint32_t blocks_promised(const Sequence& s) const;
  void start(Sequence& s, const PrefixCache::Hit& hit);
  void drop_followers(Sequence& leader);
  uint32_t slots_used() const;
  void insert_running(Sequence& s);
  void build_output();

  Options options_;
  const KvLayout& layout_;
  BlockPool& pool_;
  PrefixCache& cache_;
  FairQueue queue_;
  std::vector<Sequence*> running_;  // oldest first
  SchedulerOutput output_;
  uint32_t rows_left_ = 0;
  uint32_t logit_rows_left_ = 0;
  // Of the step being planned, where there are costs.
  StepLoad load_;
  SharedRows shared_;
  uint32_t prompt_rows_ = 0;
  Sequence* oldest_ = nullptr;      // that ran before this step
  uint32_t held_rows_ = 0;          // of the budget, which only the oldest may take; with one logit row
  std::vector<Sequence*> decodes_;  // of this step, and prompts, without those that have their rows
  std::vector<Sequence*> prompts_;
  double target_seconds_ = 0;
  Counters counters_;
};

}  // namespace kvasir
