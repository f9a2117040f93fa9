#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "engine/scheduler.h"
#include "kvcache/kv_store.h"
#include "models/causal_lm.h"

namespace kvasir {

// Turns a plan into one flat batch, makes its block copies and runs the model. Owns the KV memory and the
// logits. Everything is allocated at construction.
class ModelRunner {
 public:
  // `limits` are those the model was loaded with. Throws std::bad_alloc when the machine has not the memory.
  ModelRunner(CausalLm& model, const KvLayout& layout, uint32_t blocks, const CausalLm::Limits& limits,
              uint32_t max_num_seqs);

  void run(const SchedulerOutput& plan);

  // The logits of a row of the plan that was run last; the caller may scribble on them.
  std::span<float> logits(uint32_t logit_row);

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
};

}  // namespace kvasir
