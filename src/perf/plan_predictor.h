#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "perf/perf_model.h"
#include "perf/work_formulas.h"

namespace kvasir {

// What the engine would predict of a plan's steps: PerfModel on a file's header and a machine whose kernels
// were measured. Knows the model as it is stored and that machine only; a plan with other weights, another
// machine or a KV cache that the engine does not keep has none. Immutable.
class PlanPredictor {
 public:
  struct Model {
    ModelConfig config;
    WeightSizes weights;
  };
  // `options.max_rows` is what the engine computes in a step at most (--max-num-batched-tokens): longer
  // prompts and larger batches are several steps.
  PlanPredictor(Model model, const HardwareProfile& machine, PerfModel::Options options);

  // The same with another KV cache, or another number of threads.
  std::shared_ptr<const PlanPredictor> with_kv(KvType type) const;
  std::shared_ptr<const PlanPredictor> with_threads(uint32_t threads) const;

  // Of all the engine's steps that make up the shape, `logit_rows` of each sequence's last rows wanting
  // logits.
  StepPrediction predict(const StepShape& shape) const;
  // Adds up to predict(): PerfModel::add_terms of these steps.
  StepTerms terms(const StepShape& shape) const;
  // How many of the engine's steps that are.
  uint64_t steps(const StepShape& shape) const;

 private:
  struct Basis {
    Model model;
    HardwareProfile machine;
  };
  PlanPredictor(std::shared_ptr<const Basis> basis, const PerfModel::Options& options);

  // One step of the engine, or several that are alike.
  struct EngineStep {
    std::vector<StepRows> sequences;
    uint32_t logit_rows = 0;
    uint64_t times = 1;
  };
  std::vector<EngineStep> engine_steps(const StepShape& shape) const;

  std::shared_ptr<const Basis> basis_;
  PerfModel::Options options_;
  PerfModel model_;
};

}  // namespace kvasir
