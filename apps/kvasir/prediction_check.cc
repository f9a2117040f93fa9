#include "apps/kvasir/prediction_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace kvasir {
namespace {

constexpr uint32_t kRepetitions = 3;
constexpr uint32_t kGenerated = 8;

double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

double median(std::vector<double> values) {
  return quantile(std::move(values), 0.5);
}

// One step of a shape over the repetitions.
struct Observed {
  std::vector<double> predicted, unadapted, measured;
};

// Watches the steps of one shape: predicts, and lets the model see what they took.
class Watcher {
 public:
  Watcher(PerfModel& model, size_t steps) : model_(model), observed_(steps) {}

  void take(std::span<const StepRows> rows, uint32_t logit_rows, double seconds) {
    const StepPrediction p = model_.predict(rows, logit_rows);
    // The first repetition warms up.
    if (seen_ >= observed_.size()) {
      Observed& o = observed_[seen_ % observed_.size()];
      o.predicted.push_back(p.seconds);
      o.unadapted.push_back(sum(p.unadapted));
      o.measured.push_back(seconds);
      for (uint32_t i = 0; i < kStepParts; ++i) parts_[i] += p.parts[i];
    }
    ++seen_;
    model_.observe(p, seconds);
  }

  PredictionRow row(const BenchShape& shape) const {
    PredictionRow row{.test = shape.name()};
    for (const Observed& o : observed_) {
      row.predicted += median(o.predicted);
      row.unadapted += median(o.unadapted);
      row.measured += median(o.measured);
    }
    row.bound = StepPrediction{.seconds = 0, .parts = parts_, .unadapted = {}}.bound();
    return row;
  }

 private:
  static double sum(const StepSeconds& parts) {
    double total = 0;
    for (const double s : parts) total += s;
    return total;
  }

  PerfModel& model_;
  std::vector<Observed> observed_;
  StepSeconds parts_{};
  size_t seen_ = 0;
};

std::string time_text(double seconds) {
  return fmt::format("{:.3f} ms", 1e3 * seconds);
}

}  // namespace

std::vector<BenchShape> prediction_shapes(uint32_t context_length) {
  std::vector<BenchShape> all;
  for (const uint32_t prompt : {128u, 512u, 2048u}) all.push_back({.prompt = prompt});
  for (const uint32_t batch : {1u, 2u, 4u, 8u, 16u, 32u})
    all.push_back({.generate = kGenerated, .batch = batch, .depth = 128});
  for (const uint32_t depth : {1024u, 4096u}) {
    for (const uint32_t batch : {1u, 4u}) all.push_back({.generate = kGenerated, .batch = batch, .depth = depth});
  }
  all.push_back({.prompt = 256, .depth = 3840});
  std::erase_if(all, [&](const BenchShape& s) { return s.depth + s.prompt + s.generate > context_length; });
  return all;
}

Result<PredictionCheck> check_predictions(ModelBench& bench, const HardwareProfile& machine,
                                          const std::function<void(const std::string&)>& progress) {
  const ModelBench::Options& o = bench.options();
  PerfModel model(bench.config(), bench.weights(), machine,
                  {.threads = o.threads, .kv_type = o.kv_type, .max_rows = o.chunk, .max_logit_rows = o.chunk});
  PredictionCheck check;
  bench.set_filled_depth(true);
  for (const BenchShape& shape : prediction_shapes(bench.config().context_length)) {
    if (shape.batch > o.chunk) continue;
    if (progress) progress(shape.name());
    Watcher watcher(model, timed_steps(shape, o.chunk).size());
    bench.set_on_step([&](std::span<const StepRows> rows, uint32_t logit_rows, double seconds) {
      watcher.take(rows, logit_rows, seconds);
    });
    const auto measured = bench.measure(shape, kRepetitions);
    bench.set_on_step({});
    if (!measured.ok()) return measured.status();
    check.rows.push_back(watcher.row(shape));
  }
  bench.set_filled_depth(false);
  std::vector<double> errors, unadapted;
  for (const PredictionRow& row : check.rows) {
    errors.push_back(std::abs(row.error()));
    unadapted.push_back(std::abs(row.unadapted_error()));
  }
  check.median_error = quantile(errors, 0.5);
  check.p90_error = quantile(errors, 0.9);
  check.median_unadapted_error = quantile(unadapted, 0.5);
  check.p90_unadapted_error = quantile(unadapted, 0.9);
  return check;
}

std::string prediction_md(const PredictionCheck& check) {
  std::string out = fmt::format("| {:<14} | {:>12} | {:>12} | {:>7} | {:>12} | {:>7} | {:<9} |\n", "test",
                                "measured", "predicted", "error", "unadapted", "error", "bound by");
  out += fmt::format("|{:-<16}|{:->13}:|{:->13}:|{:->8}:|{:->13}:|{:->8}:|{:-<11}|\n", "", "", "", "", "", "", "");
  for (const PredictionRow& row : check.rows)
    out += fmt::format("| {:<14} | {:>12} | {:>12} | {:>+5.1f} % | {:>12} | {:>+5.1f} % | {:<9} |\n", row.test,
                       time_text(row.measured), time_text(row.predicted), 100 * row.error(),
                       time_text(row.unadapted), 100 * row.unadapted_error(), step_part_name(row.bound));
  return out + fmt::format("\nerror: median {:.1f} %, 90th percentile {:.1f} %; unadapted {:.1f} %, {:.1f} %\n",
                           100 * check.median_error, 100 * check.p90_error, 100 * check.median_unadapted_error,
                           100 * check.p90_unadapted_error);
}

}  // namespace kvasir
