#include "engine/draft_forecast.h"

#include <utility>

namespace kvasir {

DraftForecast::DraftForecast(std::unique_ptr<PerfModel> model, double layers)
    : model_(std::move(model)), layers_(layers) {}

// The whole step, less the layers that do not run.
StepPrediction DraftForecast::price(const StepLoad& load) const {
  StepLoad body = load;
  body.logits = {};
  StepPrediction all = model_->predict(load);
  const StepPrediction layers = model_->predict(body);
  const double left_out = 1 - layers_;
  for (uint32_t i = 0; i < kStepParts; ++i) {
    all.parts[i] -= left_out * layers.parts[i];
    all.unadapted[i] -= left_out * layers.unadapted[i];
  }
  all.seconds -= left_out * layers.seconds;
  return all;
}

double DraftForecast::seconds(uint32_t sequences, uint32_t rows, uint32_t context) const {
  if (model_ == nullptr || sequences == 0 || rows == 0) return 0;
  StepLoad load;
  model_->add(load, {.rows = rows, .context = context}, 1);
  load.repeat(sequences);
  return price(load).seconds;
}

double DraftForecast::pass_seconds(uint32_t rows, uint32_t logit_rows, uint32_t context) const {
  if (model_ == nullptr || rows == 0) return 0;
  StepLoad load;
  model_->add(load, {.rows = rows, .context = context}, logit_rows);
  return price(load).seconds;
}

void DraftForecast::predict(uint32_t rows, uint32_t logit_rows, uint32_t context) {
  if (model_ == nullptr) return;
  StepLoad load;
  model_->add(load, {.rows = rows, .context = context}, logit_rows);
  prediction_ = price(load);
}

void DraftForecast::observe(double measured) {
  if (model_ != nullptr) model_->observe(prediction_, measured);
}

}  // namespace kvasir
