#include "engine/stats_recorder.h"

#include <algorithm>
#include <cmath>
#include <initializer_list>

namespace kvasir {
namespace {

HistogramSnapshot histogram(std::vector<double> bounds) {
  HistogramSnapshot h;
  h.counts.assign(bounds.size() + 1, 0);
  h.bounds = std::move(bounds);
  return h;
}

// 1, 2, 5, 10, 20, 50 ... up to the limit.
std::vector<double> one_two_five(uint32_t limit) {
  std::vector<double> bounds;
  for (double decade = 1; decade <= limit; decade *= 10) {
    for (const double step : {1.0, 2.0, 5.0}) {
      if (step * decade <= limit) bounds.push_back(step * decade);
    }
  }
  return bounds;
}

}  // namespace

void observe(HistogramSnapshot& histogram, double value) {
  value = std::max(value, 0.0);
  const auto it = std::lower_bound(histogram.bounds.begin(), histogram.bounds.end(), value);
  ++histogram.counts[static_cast<size_t>(it - histogram.bounds.begin())];
  histogram.sum += value;
}

StatsRecorder::StatsRecorder(uint32_t max_model_len) {
  const std::vector<double> request = {0.3, 0.5, 0.8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                       30,  40,  50,  60, 120, 240, 480, 960, 1920, 7680};
  stats_.time_to_first_token = histogram({0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75,
                                          1,     2.5,   5,    7.5,  10,   20,   40,   80,  160,  640, 2560});
  stats_.inter_token = histogram(
      {0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80});
  stats_.end_to_end = histogram(request);
  stats_.queue_time = histogram(request);
  stats_.prefill_time = histogram(request);
  stats_.decode_time = histogram(request);
  stats_.request_prompt_tokens = histogram(one_two_five(max_model_len));
  stats_.request_generation_tokens = histogram(one_two_five(max_model_len));
  stats_.forecast.error = histogram({0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.3, 0.5, 1, 2, 5});
  stats_.forecast.factors.fill(1);
  stats_.iteration_tokens = histogram({1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384});
}

void StatsRecorder::on_step(uint32_t rows, double seconds) {
  ++stats_.steps;
  stats_.computed_tokens += rows;
  stats_.step_seconds += seconds;
  observe(stats_.iteration_tokens, rows);
}

void StatsRecorder::on_forecast(const StepForecast& forecast, double seconds) {
  constexpr uint64_t kSummaryEvery = 16;  // steps: sorting the window is not for each
  EngineStats::Forecast& f = stats_.forecast;
  f.predicted_seconds += forecast.predicted();
  f.measured_seconds += seconds;
  observe(f.error, std::abs(forecast.predicted() - seconds) / std::max(seconds, 1e-9));
  for (uint32_t i = 0; i < kStepParts; ++i) f.factors[i] = forecast.model().factor(static_cast<StepPart>(i));
  if (f.steps++ % kSummaryEvery == 0) f.recent = forecast.accuracy();
}

void StatsRecorder::on_scheduled(const RequestTimes& times) {
  observe(stats_.queue_time, times.scheduled - times.arrived);
}

void StatsRecorder::on_first_token(const RequestTimes& times, uint32_t prompt_tokens) {
  stats_.prompt_tokens += prompt_tokens;
  observe(stats_.request_prompt_tokens, prompt_tokens);
  observe(stats_.time_to_first_token, times.first_token - times.arrived);
  observe(stats_.prefill_time, times.first_token - times.scheduled);
}

void StatsRecorder::on_tokens(uint32_t tokens, double gap_seconds) {
  stats_.generation_tokens += tokens;
  for (uint32_t i = 0; gap_seconds > 0 && i < tokens; ++i) observe(stats_.inter_token, gap_seconds / tokens);
}

void StatsRecorder::on_choice_finished(FinishReason reason, uint32_t output_tokens) {
  observe(stats_.request_generation_tokens, output_tokens);
  switch (reason) {
    case FinishReason::kStop:
      ++stats_.finished_stop;
      break;
    case FinishReason::kLength:
      ++stats_.finished_length;
      break;
    case FinishReason::kCancelled:
      ++stats_.finished_abort;
      break;
    case FinishReason::kError:
    case FinishReason::kNone:
      ++stats_.finished_error;
      break;
  }
}

void StatsRecorder::on_request_finished(const RequestTimes& times) {
  observe(stats_.end_to_end, times.finished - times.arrived);
  if (times.first_token > 0) observe(stats_.decode_time, times.finished - times.first_token);
}

}  // namespace kvasir
