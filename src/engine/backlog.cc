#include "engine/backlog.h"

#include <algorithm>

namespace kvasir {
namespace {

constexpr double kNewestStep = 0.05, kNewestAnswer = 0.05;  // weights of the newest in the means
constexpr uint32_t kRatesHold = 64;                         // estimates; machines drift slowly
constexpr uint32_t kContext = 512;                          // of a decode, for its price

}  // namespace

BacklogForecast::BacklogForecast(const StepCosts* costs, uint32_t rows, uint32_t slots)
    : costs_(costs), rows_(rows), slots_(slots) {}

void BacklogForecast::on_step(uint32_t rows, double seconds) {
  if (rows == 0) return;
  const double newest = seconds / rows;
  seconds_per_row_ =
      seconds_per_row_ == 0 ? newest : seconds_per_row_ + kNewestStep * (newest - seconds_per_row_);
}

void BacklogForecast::on_answer(uint32_t tokens) {
  mean_answer_ += kNewestAnswer * (tokens - mean_answer_);
}

void BacklogForecast::update_rates(uint32_t decodes) {
  if (costs_ == nullptr) {
    prompt_row_ = answer_row_ = seconds_per_row_;
    return;
  }
  if (rated_decodes_ == decodes && ++age_ < kRatesHold) return;
  StepLoad prompt, answers;
  costs_->add(prompt, {.rows = rows_, .context = 0}, 1);
  for (uint32_t i = 0; i < decodes; ++i) costs_->add(answers, {.rows = 1, .context = kContext}, 1);
  prompt_row_ = costs_->seconds(prompt) / rows_;
  answer_row_ = costs_->seconds(answers) / decodes;
  rated_decodes_ = decodes;
  age_ = 0;
}

BacklogForecast::Seconds BacklogForecast::estimate(const Scheduler& scheduler) {
  const FairQueue& queue = scheduler.queue();
  const uint32_t sequences = static_cast<uint32_t>(scheduler.running().size()) + queue.size();
  if (sequences == 0) return {};
  update_rates(std::min(sequences, slots_));
  double rows = 0, tokens = 0;
  for (const Sequence* s : scheduler.running()) {
    rows += s->pending();
    const double said = s->known() - s->prompt_length;
    tokens += std::clamp(s->most_output - said, 0.0, s->slots * mean_answer_);
  }
  const double running = rows * prompt_row_ + tokens * answer_row_;
  const double waiting =
      static_cast<double>(queue.work().rows) * prompt_row_ + queue.work().outputs(mean_answer_) * answer_row_;
  return {running + waiting, waiting > 0 ? waiting + running / 2 : 0};
}

}  // namespace kvasir
