#include "apps/kvasir/prediction_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "server/json_writer.h"

namespace kvasir {
namespace {

// All tests in turns, several times: a machine that is slow for a while is so for all of them.
constexpr uint32_t kRounds = 3, kRepetitions = 2;
constexpr std::chrono::seconds kPatience{30};  // after which no further round begins
constexpr uint32_t kLongPrompt = 1024;         // whose steps are many, and one repetition enough
constexpr uint32_t kGenerated = 8;

double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(part * static_cast<double>(values.size() - 1) + 0.5)];
}

// Watches the steps of one test. What is predicted of it is said at construction; then the model sees what
// each step took.
class Watcher {
 public:
  Watcher(PerfModel& model, const BenchShape& shape, uint32_t chunk) : model_(model) {
    row_.test = shape.name();
    StepSeconds parts{};
    for (const BenchStep& step : timed_steps(shape, chunk)) {
      const std::vector<StepRows> rows(shape.batch, {.rows = step.rows, .context = step.first});
      const StepPrediction p = model.predict(rows, step.logits ? shape.batch : 0);
      row_.predicted += p.seconds;
      for (uint32_t i = 0; i < kStepParts; ++i) {
        row_.unadapted += p.unadapted[i];
        parts[i] += p.parts[i];
      }
      measured_.emplace_back();
    }
    row_.bound = StepPrediction{.seconds = 0, .parts = parts, .unadapted = {}}.bound();
  }

  void take(std::span<const StepRows> rows, uint32_t logit_rows, double seconds) {
    if (seen_++ < measured_.size()) return;  // the first repetition warms up
    measured_[(seen_ - 1) % measured_.size()].push_back(seconds);
    model_.observe(model_.predict(rows, logit_rows), seconds);
  }

  PredictionRow row() const {
    PredictionRow row = row_;
    for (const std::vector<double>& seconds : measured_) row.measured += quantile(seconds, 0.5);
    return row;
  }

 private:
  PerfModel& model_;
  PredictionRow row_;
  std::vector<std::vector<double>> measured_;  // [step][repetition]
  size_t seen_ = 0;
};

// Medians over the rounds of a test.
PredictionRow middle_of(const std::vector<PredictionRow>& rounds) {
  PredictionRow row = rounds.front();
  for (double PredictionRow::*member :
       {&PredictionRow::predicted, &PredictionRow::unadapted, &PredictionRow::measured}) {
    std::vector<double> values;
    for (const PredictionRow& r : rounds) values.push_back(r.*member);
    row.*member = quantile(std::move(values), 0.5);
  }
  return row;
}

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
    for (const uint32_t batch : {1u, 4u})
      all.push_back({.generate = kGenerated, .batch = batch, .depth = depth});
  }
  all.push_back({.prompt = 256, .depth = 3840});
  std::erase_if(all, [&](const BenchShape& s) { return s.depth + s.prompt + s.generate > context_length; });
  return all;
}

Result<PredictionCheck> check_predictions(ModelBench& bench, const HardwareProfile& machine,
                                          const std::function<void(const std::string&)>& progress) {
  const ModelBench::Options& o = bench.options();
  PerfModel model(
      bench.config(), bench.weights(), machine,
      {.threads = o.threads, .kv_type = o.kv_type, .max_rows = o.chunk, .max_logit_rows = o.chunk});
  const auto run = [&](const BenchShape& shape) -> Result<PredictionRow> {
    if (progress) progress(shape.name());
    Watcher watcher(model, shape, o.chunk);
    bench.set_on_step([&](std::span<const StepRows> rows, uint32_t logit_rows, double seconds) {
      watcher.take(rows, logit_rows, seconds);
    });
    const auto measured = bench.measure(shape, shape.prompt > kLongPrompt ? 1 : kRepetitions);
    bench.set_on_step({});
    if (!measured.ok()) return measured.status();
    return watcher.row();
  };
  PredictionCheck check;
  bench.set_filled_depth(true);
  for (const BenchShape& shape : {BenchShape{.prompt = 64}, BenchShape{.generate = kGenerated}})
    KVASIR_RETURN_IF_ERROR(run(shape).status());
  std::vector<BenchShape> shapes = prediction_shapes(bench.config().context_length);
  std::erase_if(shapes, [&](const BenchShape& shape) { return shape.batch > o.chunk; });
  std::vector<std::vector<PredictionRow>> rounds(shapes.size());
  const auto begin = std::chrono::steady_clock::now();
  for (uint32_t round = 0; round < kRounds; ++round) {
    if (round > 0 && std::chrono::steady_clock::now() - begin > kPatience) break;
    for (size_t i = 0; i < shapes.size(); ++i) {
      KVASIR_ASSIGN_OR_RETURN(PredictionRow row, run(shapes[i]));
      rounds[i].push_back(std::move(row));
    }
  }
  for (const std::vector<PredictionRow>& rows : rounds) check.rows.push_back(middle_of(rows));
  bench.set_filled_depth(false);
  check.steps = model.accuracy().adapted;
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

std::string prediction_md(const PredictionSetting& setting, const PredictionCheck& check) {
  std::string out =
      fmt::format("{}, {} threads, {}; machine {}{}\n\n", setting.model, setting.threads, setting.isa,
                  setting.machine, setting.kernels ? "" : " (no kernel rates: derived from its peaks)");
  out += fmt::format("| {:<14} | {:>12} | {:>12} | {:>7} | {:>12} | {:>7} | {:<9} |\n", "test", "measured",
                     "predicted", "error", "unadapted", "error", "bound by");
  out += fmt::format("|{:-<16}|{:->13}:|{:->13}:|{:->8}:|{:->13}:|{:->8}:|{:-<11}|\n", "", "", "", "", "", "",
                     "");
  for (const PredictionRow& row : check.rows)
    out += fmt::format("| {:<14} | {:>12} | {:>12} | {:>+5.1f} % | {:>12} | {:>+5.1f} % | {:<9} |\n",
                       row.test, time_text(row.measured), time_text(row.predicted), 100 * row.error(),
                       time_text(row.unadapted), 100 * row.unadapted_error(), step_part_name(row.bound));
  return out +
         fmt::format(
             "\nerror: median {:.1f} %, 90th percentile {:.1f} %; unadapted, as `kvasir plan` predicts: "
             "median "
             "{:.1f} %, 90th percentile {:.1f} %\n"
             "single steps, each predicted just before: median {:.1f} %, 90th percentile {:.1f} %, bias "
             "{:+.1f} %\n",
             100 * check.median_error, 100 * check.p90_error, 100 * check.median_unadapted_error,
             100 * check.p90_unadapted_error, 100 * check.steps.median, 100 * check.steps.p90,
             100 * check.steps.bias);
}

std::string prediction_json(const PredictionSetting& setting, const PredictionCheck& check) {
  JsonWriter out;
  out.begin_object().field("model", setting.model).field("machine", setting.machine);
  out.field("kernel_rates", setting.kernels).field("threads", setting.threads).field("isa", setting.isa);
  out.key("tests").begin_array();
  for (const PredictionRow& row : check.rows) {
    out.begin_object().field("test", row.test).field("measured_seconds", row.measured);
    out.field("predicted_seconds", row.predicted).field("error", row.error());
    out.field("unadapted_seconds", row.unadapted).field("unadapted_error", row.unadapted_error());
    out.field("bound", step_part_name(row.bound)).end_object();
  }
  out.end_array().field("median_error", check.median_error).field("p90_error", check.p90_error);
  out.field("median_unadapted_error", check.median_unadapted_error);
  out.field("p90_unadapted_error", check.p90_unadapted_error).key("steps").begin_object();
  out.field("count", check.steps.count).field("median_error", check.steps.median);
  out.field("p90_error", check.steps.p90).field("bias", check.steps.bias).end_object().end_object();
  return out.take() + "\n";
}

}  // namespace kvasir
