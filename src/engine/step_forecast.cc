#include "engine/step_forecast.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"

namespace kvasir {
namespace {

constexpr double kNewest = 0.1;    // weight of the newest step in what lies around the forward pass
constexpr double kMostGrowth = 3;  // one step counts as so many times the usual at most

}  // namespace

StepForecast::StepForecast(std::unique_ptr<PerfModel> model) : model_(std::move(model)) {
  CHECK(model_ != nullptr);
}

void StepForecast::add(StepLoad& load, const StepRows& sequence, uint32_t logit_rows) const {
  model_->add(load, sequence, logit_rows);
}

double StepForecast::seconds(const StepLoad& load) const {
  return model_->seconds(load) + around(load.logit_rows);
}

void StepForecast::predict(const SchedulerOutput& plan) {
  load_ = {};
  for (const SchedulerOutput::Item& item : plan.items)
    model_->add(load_, {.rows = item.rows, .context = item.sequence->computed}, item.logit_rows);
  prediction_ = model_->predict(load_);
  predicted_ = prediction_.seconds + around(load_.logit_rows);
}

void StepForecast::observe(const SchedulerOutput& plan, double forward_seconds, double step_seconds) {
  model_->observe(prediction_, forward_seconds);
  if (step_seconds > 0) errors_.add((predicted_ - step_seconds) / step_seconds);
  const double around = std::max(0.0, step_seconds - forward_seconds) / (1.0 + load_.logit_rows);
  around_ = around_ == 0 ? around : around_ + kNewest * (std::min(around, kMostGrowth * around_) - around_);
  spdlog::debug("step: {} rows of {} sequences, {} logits; predicted {:.2f} ms, took {:.2f} ms, bound by {}",
                plan.rows, plan.items.size(), plan.logit_rows, 1e3 * predicted_, 1e3 * step_seconds,
                step_part_name(prediction_.bound()));
}

}  // namespace kvasir
