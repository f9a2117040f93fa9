#pragma once

#include <functional>
#include <string>
#include <vector>

#include "apps/kvasir/model_bench.h"
#include "perf/perf_model.h"

namespace kvasir {

// Predicted against measured time of one test: medians over several rounds of all tests.
struct PredictionRow {
  std::string test;
  double predicted =
      0;  // seconds, said before the test began, by a model that has adapted to other tests only
  double unadapted = 0;  // as the machine's measured rates alone say
  double measured = 0;   // of each step the median over its repetitions, summed over the steps
  StepPart bound = StepPart::kStream;
  double error() const { return (predicted - measured) / measured; }
  double unadapted_error() const { return (unadapted - measured) / measured; }
};

struct PredictionCheck {
  std::vector<PredictionRow> rows;
  double median_error = 0, p90_error = 0;  // of the absolute errors of rows
  double median_unadapted_error = 0, p90_unadapted_error = 0;
  ErrorWindow::Summary steps;  // of single steps, each predicted just before it ran, as an engine does
};

// What is run: reading 128, 512 and 2,048 tokens, writing in 1 to 32 sequences, and after up to 4,096 tokens;
// as far as the model's context goes.
std::vector<BenchShape> prediction_shapes(uint32_t context_length);

// Runs short loads on an open model and predicts them, with a PerfModel that begins as the machine's measured
// rates and adapts with each step as an engine's does; a little reading and writing comes first. Takes half a
// minute or, of a large model, as long as one round of tests. Errors are those of ModelBench::measure().
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
