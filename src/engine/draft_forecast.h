#pragma once

#include <cstdint>
#include <memory>

#include "perf/perf_model.h"

namespace kvasir {

// What passes that draft take: those of PerfModel, or of a part of its layers and the whole head, adapted as
// they are measured. Without a model nothing is known, and everything takes 0.
class DraftForecast {
 public:
  // `layers`: part of the model's layers that run, 0 to 1.
  explicit DraftForecast(std::unique_ptr<PerfModel> model = nullptr, double layers = 1);

  // Seconds of a pass of `sequences` sequences with `rows` rows each, all behind `context` tokens.
  double seconds(uint32_t sequences, uint32_t rows, uint32_t context) const;

  // Of a pass with so many rows, of which so many want logits.
  double pass_seconds(uint32_t rows, uint32_t logit_rows, uint32_t context) const;

  // Before a pass, with its rows, those whose logits are wanted, and the mean context; after it, its seconds.
  void predict(uint32_t rows, uint32_t logit_rows, uint32_t context);
  void observe(double measured);

 private:
  StepPrediction price(const StepLoad& load) const;

  std::unique_ptr<PerfModel> model_;
  double layers_;
  StepPrediction prediction_;
};

}  // namespace kvasir
