#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>
#include <vector>

#include "engine/scheduler.h"
#include "perf/perf_model.h"

namespace kvasir {

// A scheduler with many sequences and no model: what the engine's thread does for a step beside the forward
// pass and the sampling.
class StepRig {
 public:
  struct Options {
    std::vector<uint32_t> windows = std::vector<uint32_t>(30, 0);  // SmolLM2-135M's layers
    uint32_t block_size = 32;
    uint32_t blocks = 8192;
    uint32_t max_num_seqs = 256;
    uint32_t max_num_batched_tokens = 256;
    uint32_t max_model_len = 2048;
    bool paced = true;  // steps are predicted, as with a measured machine
  };
  explicit StepRig(const Options& options)
      : options_(options),
        layout_(make_layout(options)),
        pool_(options.blocks),
        cache_(layout_, pool_, {}),
        costs_(make_costs(options)),
        scheduler_({options.max_num_seqs, options.max_num_batched_tokens, options.max_num_batched_tokens,
                    options.max_model_len, options.paced ? costs_.get() : nullptr},
                   layout_, pool_, cache_) {}

  // A sequence with a prompt whose first `shared` tokens all have in common.
  Sequence& add(uint32_t prompt, uint32_t shared = 0) {
    const uint32_t text = ++texts_;
    std::vector<TokenId> tokens;
    tokens.reserve(options_.max_model_len);
    for (uint32_t p = 0; p < prompt; ++p)
      tokens.push_back(static_cast<TokenId>((p < shared ? 0 : text * 7919) + p));
    Sequence& s = sequences_.emplace_back(BlockTable(layout_, pool_, cache_, "", options_.max_model_len),
                                          std::move(tokens), prompt);
    s.age = {text, 0};
    scheduler_.add(s);
    return s;
  }

  // Plans a step, commits it, and gives each sequence that has caught up its next token.
  const SchedulerOutput& step() {
    const SchedulerOutput& plan = scheduler_.plan();
    for (const SchedulerOutput::Item& item : plan.items) {
      Sequence& s = *item.sequence;
      s.computed += item.rows;
      s.scheduled = 0;
      s.table.commit(s.tokens, s.computed);
      if (s.pending() == 0) s.tokens.push_back(static_cast<TokenId>(s.computed * 31 + s.age.first));
    }
    return plan;
  }

  // Steps until everybody runs and decodes.
  void settle() {
    const auto decodes = [](const Sequence& s) {
      return s.state == Sequence::State::kRunning && s.pending() == 1;
    };
    while (!std::all_of(sequences_.begin(), sequences_.end(), decodes)) step();
  }

  // Everybody has finished.
  void clear() {
    for (Sequence& s : sequences_) scheduler_.remove(s);
    sequences_.clear();
  }

  // Whether the next step would go beyond the longest sequence.
  bool at_end() const {
    return std::any_of(sequences_.begin(), sequences_.end(),
                       [this](const Sequence& s) { return s.known() + 1 >= options_.max_model_len; });
  }

  Scheduler& scheduler() { return scheduler_; }
  std::deque<Sequence>& sequences() { return sequences_; }
  const BlockPool& pool() const { return pool_; }

 private:
  static KvLayout make_layout(const Options& options) {
    std::vector<KvLayerSpec> layers;
    for (const uint32_t window : options.windows) layers.push_back({3, 64, window});
    return KvLayout::make(layers, options.block_size).value();
  }
  static std::unique_ptr<PerfModel> make_costs(const Options& options) {
    ModelConfig config;
    config.layers = static_cast<uint32_t>(options.windows.size());
    config.windows = options.windows;
    config.heads = 9;
    config.kv_heads = 3;
    config.head_dim = 64;
    config.hidden_dim = 576;
    config.ffn_dim = 1536;
    config.vocab_size = 49152;
    HardwareProfile machine;
    machine.threads = 2;
    machine.clock_hz = 3e9;
    machine.int8_macs = machine.f32_macs = {1e11, 2e11};
    machine.reads = {{1 << 20, {1e10, 2e10}}};
    return std::make_unique<PerfModel>(config, WeightSizes{}, machine,
                                       PerfModel::Options{.threads = 2,
                                                          .max_rows = options.max_num_batched_tokens,
                                                          .max_logit_rows = options.max_num_batched_tokens});
  }

  Options options_;
  KvLayout layout_;
  BlockPool pool_;
  PrefixCache cache_;
  std::unique_ptr<PerfModel> costs_;
  Scheduler scheduler_;
  std::deque<Sequence> sequences_;
  uint32_t texts_ = 0;
};

}  // namespace kvasir
