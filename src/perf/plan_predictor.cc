#include "perf/plan_predictor.h"

#include <algorithm>
#include <utility>

namespace kvasir {
namespace {

// Every row of a step may want logits.
PerfModel::Options with_logits(PerfModel::Options options) {
  options.max_logit_rows = options.max_rows;
  return options;
}

}  // namespace

PlanPredictor::PlanPredictor(Model model, const HardwareProfile& machine, PerfModel::Options options)
    : PlanPredictor(std::make_shared<const Basis>(Basis{std::move(model), machine}), options) {}

PlanPredictor::PlanPredictor(std::shared_ptr<const Basis> basis, const PerfModel::Options& options)
    : basis_(std::move(basis)),
      options_(with_logits(options)),
      model_(basis_->model.config, basis_->model.weights, basis_->machine, options_) {}

std::shared_ptr<const PlanPredictor> PlanPredictor::with_kv(KvType type) const {
  PerfModel::Options options = options_;
  options.kv_type = type;
  return std::shared_ptr<const PlanPredictor>(new PlanPredictor(basis_, options));
}

std::shared_ptr<const PlanPredictor> PlanPredictor::with_threads(uint32_t threads) const {
  PerfModel::Options options = options_;
  options.threads = threads;
  return std::shared_ptr<const PlanPredictor>(new PlanPredictor(basis_, options));
}

std::vector<PlanPredictor::EngineStep> PlanPredictor::engine_steps(const StepShape& shape) const {
  const uint64_t most = options_.max_rows;
  std::vector<EngineStep> steps;
  const auto add = [&](uint64_t sequences, uint64_t rows, uint64_t context, uint64_t logit_rows,
                       uint64_t times) {
    const StepRows one{static_cast<uint32_t>(rows), static_cast<uint32_t>(context)};
    steps.push_back({std::vector<StepRows>(sequences, one), static_cast<uint32_t>(logit_rows), times});
  };
  if (shape.rows <= most) {  // whole sequences, as many as go into a step
    const uint64_t together = std::min(most / shape.rows, shape.sequences);
    add(together, shape.rows, shape.context, together * shape.logit_rows, shape.sequences / together);
    if (const uint64_t left = shape.sequences % together; left > 0)
      add(left, shape.rows, shape.context, left * shape.logit_rows, 1);
    return steps;
  }
  for (uint64_t done = 0; done < shape.rows; done += most) {
    const uint64_t rows = std::min(most, shape.rows - done);
    const uint64_t after = shape.rows - done - rows;
    const uint64_t logits = shape.logit_rows > after ? std::min(rows, shape.logit_rows - after) : 0;
    add(1, rows, shape.context + done, logits, shape.sequences);
  }
  return steps;
}

StepPrediction PlanPredictor::predict(const StepShape& shape) const {
  StepPrediction sum;
  for (const EngineStep& step : engine_steps(shape)) {
    const StepPrediction p = model_.predict(step.sequences, step.logit_rows);
    const auto times = static_cast<double>(step.times);
    sum.seconds += times * p.seconds;
    for (uint32_t i = 0; i < kStepParts; ++i) {
      sum.parts[i] += times * p.parts[i];
      sum.unadapted[i] += times * p.unadapted[i];
    }
  }
  return sum;
}

StepTerms PlanPredictor::terms(const StepShape& shape) const {
  StepTerms terms;
  for (const EngineStep& step : engine_steps(shape))
    for (uint64_t i = 0; i < step.times; ++i) model_.add_terms(step.sequences, step.logit_rows, terms);
  return terms;
}

uint64_t PlanPredictor::steps(const StepShape& shape) const {
  uint64_t sum = 0;
  for (const EngineStep& step : engine_steps(shape)) sum += step.times;
  return sum;
}

}  // namespace kvasir
