#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "engine/scheduler.h"
#include "engine/shared_rows.h"
#include "perf/perf_model.h"

namespace kvasir {

// The engine's view of what its steps take: the model's forward pass as PerfModel predicts it, and what the
// engine does around it (planning, sampling, events), learnt from the steps. Predictions choose the schedule
// only; what a step computes does not depend on them.
class StepForecast final : public StepCosts {
 public:
  StepForecast(std::unique_ptr<PerfModel> model, const KvLayout& layout, uint32_t max_num_seqs);

  void add(StepLoad& load, const StepRows& sequence, LogitRows logits) const override;
  double seconds(const StepLoad& load) const override;

  // Before a planned step; `wanted` as of ForwardBatch::logits_wanted.
  void predict(const SchedulerOutput& plan, std::span<const uint32_t> wanted);
  double predicted() const { return predicted_; }
  // After it: what the forward pass took and what the whole step did. Logs both (debug).
  void observe(const SchedulerOutput& plan, double forward_seconds, double step_seconds);

  // Of whole steps.
  ErrorWindow::Summary accuracy() const { return errors_.summary(); }
  const PerfModel& model() const { return *model_; }

 private:
  double around(uint32_t logit_rows) const { return around_ * (1.0 + logit_rows); }

  std::unique_ptr<PerfModel> model_;
  SharedRows shared_;
  double around_ = 0;  // seconds around the forward pass, per row that is sampled and once
  StepLoad load_;
  StepPrediction prediction_;
  double predicted_ = 0;
  ErrorWindow errors_;
};

}  // namespace kvasir
