#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "engine/scheduler.h"
#include "kvcache/kv_store.h"
#include "models/causal_lm.h"

namespace kvasir {

// What is left of a row's logits: all of them, to scribble on, or the best.
struct RowLogits {
  std::span<float> all;
  const BestLogits* best = nullptr;  // null: `all` counts
};

// Makes a plan's block copies, turns it into one flat batch and runs the model. Owns the KV memory and the
// logits. Everything is allocated at construction.
class ModelRunner {
 public:
  // `limits` are those the model was loaded with. Throws std::bad_alloc when the machine has not the memory.
  ModelRunner(CausalLm& model, const KvLayout& layout, uint32_t blocks, const CausalLm::Limits& limits,
              uint32_t max_num_seqs);

  // Makes the plan's block copies: before anything is computed for it, guesses included.
  void copy_blocks(const SchedulerOutput& plan);
  // Computes it. `wanted`: for each logit row of the plan, as ForwardBatch::logits_wanted.
  // `hidden`: hidden states to be handed out, of rows of the plan.
  void run(const SchedulerOutput& plan, std::span<const uint32_t> wanted, const HiddenTap& hidden = {});

  // A logit row of the plan that was run last.
  RowLogits logits(uint32_t logit_row);

  KvStore& store() { return store_; }

 private:
  CausalLm& model_;
  KvStore store_;
  CausalLm::Limits limits_;
  size_t vocab_;
  AlignedBuffer logits_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<ForwardBatch::Sequence> sequences_;
  std::vector<uint32_t> logit_rows_;
  std::vector<uint32_t> slots_;   // where in logits_ each logit row is that wants all
  std::vector<BestLogits> best_;  // [max_logit_rows]
};

}  // namespace kvasir
