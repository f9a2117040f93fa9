#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/backlog.h"
#include "engine/choice.h"
#include "engine/clock.h"
#include "engine/engine.h"
#include "engine/engine_trace.h"
#include "engine/kv_persist.h"
#include "engine/model_runner.h"
#include "engine/row_sampler.h"
#include "engine/scheduler.h"
#include "engine/speculator.h"
#include "engine/stats_recorder.h"
#include "engine/step_forecast.h"

namespace kvasir {

// The engine without its thread: requests in, steps, events out. Everything here belongs to one thread.
class EngineCore {
 public:
  // `config` is complete (see Engine::start). The references outlive the core. `perf` may be null. Throws
  // std::bad_alloc when the machine has not the memory.
  EngineCore(const EngineConfig& config, const KvLayout& layout, uint32_t blocks, CausalLm& model,
             const Tokenizer& tokenizer, const KernelTable& kernels, ThreadPool& pool, uint64_t hash_seed,
             std::unique_ptr<PerfModel> perf = nullptr, std::vector<std::unique_ptr<Drafter>> drafters = {});
  ~EngineCore();

  // A request that check_request() let through. `arrived` is in monotonic_seconds(). Ids ascend.
  void add(RequestId id, Request request, TokenSink sink, double arrived);
  // Ends a request, if it is there: kCancelled for its unfinished choices.
  void cancel(RequestId id);
  void cancel_all();

  bool has_work() const { return scheduler_.has_work(); }
  // Plans, computes and commits one step. There must be work. Where no step can be planned, everything is
  // taken back and admitted anew; where that was in vain, the oldest request ends with an error.
  void step();

  // Takes cached prefixes from the directory, and keeps them there from now on. Before anything else. `wake`
  // is called from another thread when tick() has something to do.
  void keep_prefixes(std::unique_ptr<KvDirectory> directory, std::function<void()> wake);
  void tick(double now);
  std::optional<double> next_tick() const;  // when tick() is due without being woken
  void save_prefixes();

  // Something for an engine at rest: memory for one more of the KV blocks that come next. False when 64 MiB
  // of them have it.
  bool ready_memory();

  EngineTrace& trace() { return trace_; }
  const EngineTrace& trace() const { return trace_; }

  // Requests that have left the queue (were computed for the first time, or ended before), and that have
  // ended.
  uint64_t requests_started() const { return requests_started_; }
  // Whose requests have left the queue since forget_left_queue(): a user for each.
  const std::vector<std::string>& left_queue() const { return left_queue_; }
  void forget_left_queue() { left_queue_.clear(); }
  uint64_t requests_ended() const { return requests_ended_; }
  size_t requests_held() const { return requests_.size(); }
  const Scheduler& scheduler() const { return scheduler_; }

  const EngineStats& update_stats();
  // The invariants of docs/invariants.md; when nothing is left to do, also that every block has come home.
  Status check_integrity() const;

 private:
  std::unique_ptr<Choice> make_choice(ActiveRequest& request, uint32_t index, BlockTable table,
                                      std::vector<TokenId> tokens, uint32_t prompt_length);
  void leave_queue(ActiveRequest& request);
  void note_started(const SchedulerOutput& plan, double now);
  void wish_logits(const SchedulerOutput& plan);
  void commit(const SchedulerOutput::Item& item, double now);
  bool score_prompt(Choice& choice, const SchedulerOutput::Item& item);
  void prepare(Choice& choice, const SchedulerOutput::Item& item, double now);
  void take(const RowSampler::Advance& advance, double now);
  void part_choices(Choice& first, const RowLogits& row, double now);
  void finish(Choice& choice, FinishReason reason, const Status& error, double now);
  void finish_unparted(Choice& choice, FinishReason reason, const Status& error);
  void reap(double now);
  void end_request(RequestId id, FinishReason reason, const Status& error);
  void trace_step(const SchedulerOutput& plan);
  void resolve_stall();
  void note_step(const SchedulerOutput& plan, double forward_seconds, double seconds);

  EngineConfig config_;
  const KvLayout layout_;
  const Tokenizer& tokenizer_;
  const KernelTable& kernels_;
  uint32_t vocab_;
  BlockPool pool_;
  PrefixCache cache_;
  std::unique_ptr<StepForecast> forecast_;  // null: nothing is predicted
  Scheduler scheduler_;
  ModelRunner runner_;
  Speculator speculator_;
  StatsRecorder recorder_;
  RowSampler sampler_;
  std::vector<float> row_copy_;
  std::vector<uint32_t> wanted_;  // of the step, as ForwardBatch::logits_wanted
  std::unordered_map<uint64_t, std::unique_ptr<ActiveRequest>> requests_;
  std::vector<uint64_t> ended_;  // in this step, still held
  BacklogForecast backlog_;
  std::vector<std::string> left_queue_;
  uint64_t requests_started_ = 0;
  uint64_t requests_ended_ = 0;
  EngineTrace trace_;
  bool started_over_ = false;  // since the last step with rows
  std::unique_ptr<KvPersist> persist_;

  friend struct EngineCorePeer;  // for tests, which bring about what should not happen
};

}  // namespace kvasir
