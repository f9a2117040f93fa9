#include "apps/kvasir/prediction_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "apps/kvasir/machine_reference.h"
#include "perf/kernel_calibration.h"
#include "perf/machine_info.h"
#include "server/json_writer.h"

namespace kvasir {
namespace {

// All tests in turns, several times: a machine that is slow for a while is so for all of them.
constexpr uint32_t kRounds = 3, kRepetitions = 3;
constexpr std::chrono::seconds kPatience{30};  // after which no further round begins
constexpr uint32_t kLongPrompt = 1024;         // whose steps are many, and one repetition enough
constexpr uint32_t kGenerated = 8;
constexpr uint32_t kTestsPerPass = 2;
// A test is predicted from so many passes before it and after it.
constexpr uint32_t kPassesAround = 2;

double quantile(std::vector<double> values, double part) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  return values[static_cast<size_t>(std::lround(part * static_cast<double>(values.size() - 1)))];
}

// Of an even number of values the mean of the middle two: the larger one of two would be a bias.
double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

// One run of a test.
struct Run {
  double measured = 0;
  uint32_t passes = 0;  // over the kernels that were made before it
};

// Takes the times of one test's steps, and shows them to a model.
class Watcher {
 public:
  Watcher(PerfModel& model, size_t steps) : model_(model), measured_(steps) {}

  void take(std::span<const StepRows> rows, uint32_t logit_rows, double seconds) {
    if (seen_++ < measured_.size()) return;  // the first repetition warms up
    measured_[(seen_ - 1) % measured_.size()].push_back(seconds);
    model_.observe(model_.predict(rows, logit_rows), seconds);
  }

  double measured() const {
    double sum = 0;
    for (const std::vector<double>& seconds : measured_) sum += median(seconds);
    return sum;
  }

 private:
  PerfModel& model_;
  std::vector<std::vector<double>> measured_;  // [step][repetition]
  size_t seen_ = 0;
};

double sum_of(const StepSeconds& parts) {
  double sum = 0;
  for (const double part : parts) sum += part;
  return sum;
}

class Checker {
 public:
  Checker(ModelBench& bench, const HardwareProfile& machine, KernelCalibration calibration)
      : bench_(bench),
        machine_(machine),
        calibration_(std::move(calibration)),
        shapes_(prediction_shapes(bench.config().context_length)),
        adapting_(model_on(machine)) {
    std::erase_if(shapes_, [&](const BenchShape& shape) { return shape.batch > bench.options().chunk; });
    runs_.resize(shapes_.size());
  }

  Status measure(const std::function<void(const std::string&)>& progress);
  PredictionCheck result() const;

 private:
  PerfModel model_on(const HardwareProfile& machine) const {
    const ModelBench::Options& o = bench_.options();
    return PerfModel(
        bench_.config(), bench_.weights(), machine,
        {.threads = o.threads, .kv_type = o.kv_type, .max_rows = o.chunk, .max_logit_rows = o.chunk});
  }
  Result<double> run(const BenchShape& shape);
  StepSeconds parts_of(const BenchShape& shape, const PerfModel& model) const;

  ModelBench& bench_;
  const HardwareProfile& machine_;
  KernelCalibration calibration_;
  std::vector<BenchShape> shapes_;
  std::vector<std::vector<Run>> runs_;  // [shape][round]
  PerfModel adapting_;
};

Result<double> Checker::run(const BenchShape& shape) {
  Watcher watcher(adapting_, timed_steps(shape, bench_.options().chunk).size());
  bench_.set_on_step([&](std::span<const StepRows> rows, uint32_t logit_rows, double seconds) {
    watcher.take(rows, logit_rows, seconds);
  });
  const auto measured = bench_.measure(shape, shape.prompt > kLongPrompt ? 1 : kRepetitions);
  bench_.set_on_step({});
  if (!measured.ok()) return measured.status();
  return watcher.measured();
}

Status Checker::measure(const std::function<void(const std::string&)>& progress) {
  bench_.set_filled_depth(true);
  for (const BenchShape& shape : {BenchShape{.prompt = 64}, BenchShape{.generate = kGenerated}})
    KVASIR_RETURN_IF_ERROR(run(shape).status());
  const auto begin = std::chrono::steady_clock::now();
  for (uint32_t round = 0; round < kRounds; ++round) {
    if (round > 0 && std::chrono::steady_clock::now() - begin > kPatience) break;
    for (size_t i = 0; i < shapes_.size(); ++i) {
      if (progress) progress(shapes_[i].name());
      if (i % kTestsPerPass == 0) calibration_.pass();
      KVASIR_ASSIGN_OR_RETURN(const double measured, run(shapes_[i]));
      runs_[i].push_back({measured, calibration_.passes()});
    }
  }
  calibration_.pass();
  bench_.set_filled_depth(false);
  return {};
}

// Seconds of all steps of a shape, by part, without what the model has learnt.
StepSeconds Checker::parts_of(const BenchShape& shape, const PerfModel& model) const {
  StepSeconds parts{};
  for (const BenchStep& step : timed_steps(shape, bench_.options().chunk)) {
    const std::vector<StepRows> rows(shape.batch, {.rows = step.rows, .context = step.first});
    const StepPrediction p = model.predict(rows, step.logits ? shape.batch : 0);
    for (uint32_t i = 0; i < kStepParts; ++i) parts[i] += p.unadapted[i];
  }
  return parts;
}

PredictionCheck::Errors errors_of(std::vector<double> errors) {
  for (double& e : errors) e = std::abs(e);
  return {quantile(errors, 0.5), quantile(errors, 0.9)};
}

PredictionCheck Checker::result() const {
  PredictionCheck check;
  check.passes = calibration_.passes();
  check.bytes = calibration_.bytes();
  check.steps = adapting_.accuracy().adapted;
  std::vector<PerfModel> by_passes;  // [passes made before a test]
  for (uint32_t made = 0; made < check.passes; ++made) {
    const uint32_t first = made > kPassesAround ? made - kPassesAround : 0;
    by_passes.push_back(model_on(calibration_.applied_to(machine_, {first, made + kPassesAround})));
  }
  StepSeconds now{}, kept{};
  std::vector<double> errors, profile_errors;
  for (size_t i = 0; i < shapes_.size(); ++i) {
    std::vector<double> measured, predicted;
    StepSeconds parts{};
    for (const Run& r : runs_[i]) {
      const StepSeconds p = parts_of(shapes_[i], by_passes[r.passes]);
      measured.push_back(r.measured);
      predicted.push_back(sum_of(p));
      for (uint32_t j = 0; j < kStepParts; ++j) parts[j] += p[j] / static_cast<double>(runs_[i].size());
    }
    const StepSeconds by_profile = parts_of(shapes_[i], adapting_);
    for (uint32_t j = 0; j < kStepParts; ++j) {
      now[j] += parts[j];
      kept[j] += by_profile[j];
    }
    check.rows.push_back({.test = shapes_[i].name(),
                          .measured = median(measured),
                          .predicted = median(predicted),
                          .by_profile = sum_of(by_profile),
                          .bound = StepPrediction{.seconds = 0, .parts = parts, .unadapted = {}}.bound()});
    errors.push_back(check.rows.back().error());
    profile_errors.push_back(check.rows.back().profile_error());
  }
  for (uint32_t j = 0; j < kStepParts; ++j) check.drift[j] = kept[j] > 0 ? now[j] / kept[j] : 1;
  check.predicted = errors_of(std::move(errors));
  check.by_profile = errors_of(std::move(profile_errors));
  return check;
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
  KVASIR_ASSIGN_OR_RETURN(KernelCalibration calibration,
                          KernelCalibration::make(bench.pool(), bench.weights(),
                                                  {.isa = o.isa,
                                                   .kv_type = o.kv_type,
                                                   .head_dim = bench.config().head_dim,
                                                   .memory_limit = machine_bench_memory()}));
  Checker checker(bench, machine, std::move(calibration));
  const CpuTimes before = read_cpu_times();
  KVASIR_RETURN_IF_ERROR(checker.measure(progress));
  const CpuShares shares = shares_between(before, read_cpu_times());
  PredictionCheck check = checker.result();
  check.others = shares.others;
  check.stolen = shares.stolen;
  return check;
}

std::string prediction_md(const PredictionSetting& setting, const PredictionCheck& check) {
  std::string out =
      fmt::format("{}, {} threads, {}; machine {}{}\n\n", setting.model, setting.threads, setting.isa,
                  setting.machine, setting.kernels ? "" : " (no kernel rates: derived from its peaks)");
  out += fmt::format("| {:<14} | {:>12} | {:>12} | {:>7} | {:>12} | {:>7} | {:<9} |\n", "test", "measured",
                     "predicted", "error", "by profile", "error", "bound by");
  out += fmt::format("|{:-<16}|{:->13}:|{:->13}:|{:->8}:|{:->13}:|{:->8}:|{:-<11}|\n", "", "", "", "", "", "",
                     "");
  for (const PredictionRow& row : check.rows)
    out += fmt::format("| {:<14} | {:>12} | {:>12} | {:>+5.1f} % | {:>12} | {:>+5.1f} % | {:<9} |\n",
                       row.test, time_text(row.measured), time_text(row.predicted), 100 * row.error(),
                       time_text(row.by_profile), 100 * row.profile_error(), step_part_name(row.bound));
  out += fmt::format(
      "\nerror: median {:.1f} %, 90th percentile {:.1f} %. Predicted from the kernels alone, timed {} times "
      "between the tests over {} MiB of other memory; no step of the model was looked at.\n"
      "by profile, as `kvasir plan` predicts: median {:.1f} %, 90th percentile {:.1f} %\n"
      "single steps, each predicted just before, from the profile and adapting as a server does: median "
      "{:.1f} %, 90th percentile {:.1f} %, bias {:+.1f} %\n",
      100 * check.predicted.median, 100 * check.predicted.p90, check.passes, check.bytes >> 20,
      100 * check.by_profile.median, 100 * check.by_profile.p90, 100 * check.steps.median,
      100 * check.steps.p90, 100 * check.steps.bias);
  out += "time now over that by profile:";
  for (uint32_t i = 0; i < kStepParts; ++i)
    out += fmt::format("{} {} {:.2f}x", i == 0 ? "" : ",", step_part_name(static_cast<StepPart>(i)),
                       check.drift[i]);
  out += fmt::format("; meanwhile other processes had {:.0f} % of the CPUs, other machines {:.0f} %\n",
                     100 * check.others, 100 * check.stolen);
  if (check.disturbed())
    out +=
        "These errors are mostly theirs: each thread waits for the one that others hold up. Check again when "
        "the "
        "CPUs are idle.\n";
  return out;
}

std::string prediction_json(const PredictionSetting& setting, const PredictionCheck& check) {
  JsonWriter out;
  out.begin_object().field("model", setting.model).field("machine", setting.machine);
  out.field("kernel_rates", setting.kernels).field("threads", setting.threads).field("isa", setting.isa);
  out.key("tests").begin_array();
  for (const PredictionRow& row : check.rows) {
    out.begin_object().field("test", row.test).field("measured_seconds", row.measured);
    out.field("predicted_seconds", row.predicted).field("error", row.error());
    out.field("profile_seconds", row.by_profile).field("profile_error", row.profile_error());
    out.field("bound", step_part_name(row.bound)).end_object();
  }
  out.end_array().field("median_error", check.predicted.median).field("p90_error", check.predicted.p90);
  out.field("median_profile_error", check.by_profile.median);
  out.field("p90_profile_error", check.by_profile.p90).key("steps").begin_object();
  out.field("count", check.steps.count).field("median_error", check.steps.median);
  out.field("p90_error", check.steps.p90).field("bias", check.steps.bias).end_object();
  out.key("calibration").begin_object().field("passes", check.passes).field("bytes", check.bytes);
  out.key("time_over_profile").begin_object();
  for (uint32_t i = 0; i < kStepParts; ++i)
    out.field(step_part_name(static_cast<StepPart>(i)), check.drift[i]);
  out.end_object().field("others", check.others).field("stolen", check.stolen);
  out.field("disturbed", check.disturbed()).end_object().end_object();
  return out.take() + "\n";
}

}  // namespace kvasir
