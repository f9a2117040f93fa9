#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/kvasir/model_bench.h"
#include "perf/hardware_profile.h"
#include "perf/perf_model.h"

namespace kvasir {

// Predicted against measured time of one test, seconds: medians over several rounds of all tests.
struct PredictionRow {
  std::string test;
  double measured = 0;    // of each step the median over its repetitions, summed over the steps
  double predicted = 0;   // from the kernels as they were measured before and after the test
  double by_profile = 0;  // from the machine's profile: what `kvasir plan` says
  StepPart bound = StepPart::kStream;
  double error() const { return (predicted - measured) / measured; }
  double profile_error() const { return (by_profile - measured) / measured; }
};

struct PredictionCheck {
  struct Errors {
    double median = 0, p90 = 0;  // of the absolute errors of rows
  };
  std::vector<PredictionRow> rows;
  Errors predicted, by_profile;
  ErrorWindow::Summary steps;  // of single steps, each predicted just before it ran by a model that adapts
  // What was calibrated: passes over the kernels and the bytes that they read, and by part the time that the
  // tests take by these over that by the profile.
  uint32_t passes = 0;
  uint64_t bytes = 0;
  StepSeconds drift{};
  double others = 0, stolen = 0;  // part of the CPU time that other processes and other machines had
  // Whether that was so much that errors say more of them than of the predictions.
  bool disturbed() const { return others + stolen > HardwareProfile::kUndisturbed; }
};

// What is run: reading 128, 512 and 2,048 tokens, writing in 1 to 32 sequences, and after up to 4,096 tokens;
// as far as the model's context goes.
std::vector<BenchShape> prediction_shapes(uint32_t context_length);

// Runs short loads on an open model, and between them the kernels alone, as KernelCalibration does: a test is
// predicted from what they reached right before and after it and no step of the model is looked at. Beside
// that a PerfModel begins as the profile and adapts with each step as an engine's does. Takes a minute or, of
// a large model, as long as one round of tests. Errors are those of ModelBench::measure() and of
// KernelCalibration::make().
Result<PredictionCheck> check_predictions(ModelBench& bench, const HardwareProfile& machine,
                                          const std::function<void(const std::string& test)>& progress = {});

// What a check was run on.
struct PredictionSetting {
  std::string model = {};
  std::string machine = {};  // where its rates are from
  bool kernels = true;       // whether it has the kernels' rates, or they were derived from its peaks
  uint32_t threads = 1;
  std::string isa = {};
};
// The table for people, and the same numbers with every digit.
std::string prediction_md(const PredictionSetting& setting, const PredictionCheck& check);
std::string prediction_json(const PredictionSetting& setting, const PredictionCheck& check);

}  // namespace kvasir
