#include "engine/step_forecast.h"

#include <algorithm>

#include "base/check.h"
#include "base/log.h"
#include "models/forward_batch.h"

namespace kvasir {
namespace {

constexpr double kNewest = 0.1;    // weight of the newest step in what lies around the forward pass
constexpr double kMostGrowth = 3;  // one step counts as so many times the usual at most

}  // namespace

StepForecast::StepForecast(std::unique_ptr<PerfModel> model, const KvLayout& layout, uint32_t max_num_seqs)
    : model_(std::move(model)), shared_(layout, max_num_seqs) {
  CHECK(model_ != nullptr);
}

void StepForecast::add(StepLoad& load, const StepRows& sequence, LogitRows logits) const {
  model_->add(load, sequence, logits);
}

double StepForecast::seconds(const StepLoad& load) const {
  return model_->seconds(load) + around(load.logits.rows);
}

void StepForecast::predict(const SchedulerOutput& plan, std::span<const uint32_t> wanted) {
  load_ = {};
  shared_.clear();
  for (const SchedulerOutput::Item& item : plan.items) {
    const auto rows = wanted.subspan(item.first_logit_row, item.logit_rows);
    const auto whole = static_cast<uint32_t>(std::count(rows.begin(), rows.end(), kAllLogits));
    model_->add(load_, shared_.rows_of(*item.sequence, item.rows), {item.logit_rows, whole});
  }
  prediction_ = model_->predict(load_);
  predicted_ = prediction_.seconds + around(load_.logits.rows);
}

void StepForecast::observe(const SchedulerOutput& plan, double forward_seconds, double step_seconds) {
  model_->observe(prediction_, forward_seconds);
  if (step_seconds > 0) errors_.add((predicted_ - step_seconds) / step_seconds);
  const double around = std::max(0.0, step_seconds - forward_seconds) / (1.0 + load_.logits.rows);
  around_ = around_ == 0 ? around : around_ + kNewest * (std::min(around, kMostGrowth * around_) - around_);
  const StepSeconds& rated = prediction_.unadapted;
  spdlog::debug(
      "step: {} rows of {} sequences, {} logits; predicted {:.3f} ms, took {:.3f} ms, bound by {}; forward "
      "pass: predicted {:.3f} ms, took {:.3f} ms, by rates alone stream {:.3f} compute {:.3f} attention "
      "{:.3f} "
      "rest {:.3f} ms",
      plan.rows, plan.items.size(), plan.logit_rows, 1e3 * predicted_, 1e3 * step_seconds,
      step_part_name(prediction_.bound()), 1e3 * prediction_.seconds, 1e3 * forward_seconds, 1e3 * rated[0],
      1e3 * rated[1], 1e3 * rated[2], 1e3 * rated[3]);
}

}  // namespace kvasir
