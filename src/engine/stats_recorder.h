#pragma once

#include <cstdint>

#include "engine/request.h"
#include "engine/stats.h"
#include "engine/step_forecast.h"

namespace kvasir {

// Keeps an EngineStats up to date. Latencies follow vLLM's definitions: time to first token from arrival to
// the first token of the request; inter-token between two tokens of one choice; queue time from arrival to
// the first step that computes it; prefill from there to the first token; decode from there to the end.
class StatsRecorder {
 public:
  explicit StatsRecorder(uint32_t max_model_len);

  EngineStats& stats() { return stats_; }
  const EngineStats& stats() const { return stats_; }

  void on_step(uint32_t rows, double seconds);
  // After a forecast step's observation.
  void on_forecast(const StepForecast& forecast, double seconds);
  void on_scheduled(const RequestTimes& times);
  void on_first_token(const RequestTimes& times, uint32_t prompt_tokens);
  // New tokens of a choice, `gap_seconds` after the last that it had; 0: these are its first. Tokens that
  // come together share the gap evenly.
  void on_tokens(uint32_t tokens, double gap_seconds);
  void on_choice_finished(FinishReason reason, uint32_t output_tokens);
  void on_request_finished(const RequestTimes& times);

 private:
  EngineStats stats_;
};

// Adds one value to a histogram: to the first cell whose bound is not below it. Values below 0 count as 0.
void observe(HistogramSnapshot& histogram, double value);

}  // namespace kvasir
