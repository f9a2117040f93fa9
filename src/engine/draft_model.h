#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "kvcache/kv_layout.h"
#include "models/causal_lm.h"
#include "models/weight_sizes.h"
#include "perf/hardware_profile.h"
#include "perf/perf_model.h"
#include "tokenizer/tokenizer.h"

namespace kvasir {

// A model as far as its speed matters: its shape, the weights it reads, and what the machine does with them.
struct PricedModel {
  ModelConfig config;
  WeightSizes weights;
  HardwareProfile machine;

  // What predicts its steps; with `head_tokens`, of steps that compute the logits of so many tokens only.
  std::unique_ptr<PerfModel> perf(const EngineConfig& engine, uint32_t threads,
                                  uint32_t head_tokens = 0) const;
};

// What measures, or remembers, what the machine does with a model's formats.
using MachineSource = std::function<Result<HardwareProfile>(ThreadPool& pool, const ModelConfig& config,
                                                            const WeightSizes& weights)>;

// A model that is to draft for another.
struct DraftModel {
  std::string path;
  std::shared_ptr<CausalLm> model;
  std::optional<PricedModel> priced;  // where the machine is known
};

// What drafters that compute are made from: the target, and those that were loaded before, to be shared by
// engines of which only one works at a time. All of it outlives the drafters.
struct DraftGround {
  CausalLm& model;
  const Tokenizer& tokenizer;
  const KernelTable& kernels;
  ThreadPool& pool;
  const PricedModel* priced = nullptr;  // the target; null: the machine is not known
  const MachineSource& machine;         // may be empty
  std::vector<DraftModel>& loaded;
};

// The model of a GGUF file whose vocabulary is the target's. Errors: a file that cannot be read or run,
// tokens that differ (the first is named), more weights than there is memory beside the target's KV pool.
Result<DraftModel> load_draft_model(const std::string& path, const EngineConfig& config,
                                    const DraftGround& ground);

// Whether a draft's vocabulary means the same as the target's: the same text for every id that both have, the
// same end tokens among these. Ids that only one has (rows that pad a vocabulary) do not matter: the draft's
// are never guessed. kInvalidArgument names the first difference.
Status check_vocabulary(const Tokenizer& target, const Tokenizer& draft);

// kResourceExhausted where so many bytes of weights do not fit beside the target's pool of config.kv_bytes.
Status check_draft_memory(uint64_t weights, const EngineConfig& config, const MemoryReadings& readings);

// Blocks of a draft's pool: enough for as many tokens as the target's pool of config.kv_bytes holds and its
// sequences can have, but at most half of the memory that is left beside that pool. kResourceExhausted where
// that is not even one block.
Result<uint32_t> draft_pool_blocks(const KvLayout& layout, const KvLayout& target, const EngineConfig& config,
                                   uint32_t context, const MemoryReadings& readings);

}  // namespace kvasir
