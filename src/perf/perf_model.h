#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/kv_type.h"
#include "models/model_config.h"
#include "models/weight_sizes.h"
#include "perf/drift.h"
#include "perf/hardware_profile.h"
#include "perf/step_cost.h"
#include "perf/step_terms.h"

namespace kvasir {

// The work of a step as far as its time depends on it; made by StepCosts::add(), one sequence after the
// other.
struct StepLoad {
  uint32_t rows = 0;
  uint32_t logit_rows = 0;
  double attention = 0;  // of all threads together, seconds
  double longest = 0;    // of that, what one thread does alone
};

// What schedulers ask: the time of steps they might take.
class StepCosts {
 public:
  virtual ~StepCosts() = default;
  // `load` with one more sequence that wants `logit_rows` of its rows' logits.
  virtual void add(StepLoad& load, const StepRows& sequence, uint32_t logit_rows) const = 0;
  virtual double seconds(const StepLoad& load) const = 0;

  // The most rows, at most `limit`, that a sequence with `context` tokens may add to `load` so that the step
  // takes `target` seconds at most; 0 where not even one fits. Rows after the first `unscored` want logits,
  // and one in any case.
  uint32_t most_rows(const StepLoad& load, uint32_t context, uint32_t limit, double target,
                     uint32_t unscored = UINT32_MAX) const;
};

struct StepPrediction {
  double seconds = 0;
  StepSeconds parts{};      // adds up to it
  StepSeconds unadapted{};  // as measured rates alone say
  StepPart bound() const;   // the largest part
};

// Predicts the seconds of a forward pass, from what the kernels were measured to reach on this machine
// (KernelRates) and the model's shapes. With R rows, T threads:
//
//   linear     per matrix: n * k * rate(format, R), between the rate in cache and from memory by how much of
//   the
//              weights the last cache holds (read off the machine's read rates), times how unevenly its
//              panels go into threads; and R' logits written to memory
//   experts    the same of the part of the experts that R rows are expected to choose, each with its part of
//              the rows
//   attention  per sequence, layer and KV head, in calls of at most 96 query rows: call(rows) + positions *
//              rate(rows); positions as the window leaves them. The KV of a sequence comes from memory once.
//              The threads take calls as they become free: a step waits for the longest
//   row-wise   ceil(R / T) times the values of each kind times their rates; ceil because rows are not divided
//   barriers   eight per layer, nine of one with experts
//
// Then times the factors that DriftFilter has learnt from observe(). Everything that depends on R alone is
// tabulated at construction; predict() allocates nothing. Not thread-safe.
class PerfModel final : public StepCosts {
 public:
  struct Options {
    uint32_t threads = 1;
    KvType kv_type = KvType::kF16;
    uint32_t max_rows = 512;
    uint32_t max_logit_rows = 256;
  };
  // A machine without kernel rates gets derived_rates().
  PerfModel(const ModelConfig& config, const WeightSizes& weights, const HardwareProfile& machine,
            const Options& options);

  void add(StepLoad& load, const StepRows& sequence, uint32_t logit_rows) const override;
  double seconds(const StepLoad& load) const override { return predict(load).seconds; }

  StepPrediction predict(const StepLoad& load) const;
  StepPrediction predict(std::span<const StepRows> sequences, uint32_t logit_rows) const;
  // Adds what predict()'s `unadapted` is made of. At most max_rows and max_logit_rows.
  void add_terms(std::span<const StepRows> sequences, uint32_t logit_rows, StepTerms& terms) const;

  // What the step of a prediction took. Adapts, and counts the error of both.
  void observe(const StepPrediction& prediction, double measured);
  double factor(StepPart part) const { return drift_.factor(part); }

  struct Accuracy {
    ErrorWindow::Summary adapted, unadapted;
  };
  Accuracy accuracy() const { return {adapted_.summary(), unadapted_.summary()}; }

 private:
  // Layers of one window.
  struct Group {
    uint32_t window = 0;
    uint32_t layers = 0;
  };
  // The matrices of one format: weights, and the same times how unevenly their panels go into the threads.
  struct Linear {
    DType type = DType::kF32;
    bool head = false;
    uint32_t experts = 0;  // of a layer, of which a row uses `used`; 0: they are no experts
    uint32_t used = 0;
    double values = 0, weighed = 0;
  };
  // Seconds per weight value with so many rows.
  struct Rates {
    double cached = 0, memory = 0;
  };
  // Seconds of row-wise work: per row of a thread, per row that all share, per row of the head.
  struct Rest {
    double alone = 0, shared = 0, head = 0;
    double barriers = 0, barrier_seconds = 0;  // of a step; of one
  };
  void tabulate_linear(const WeightSizes& weights, const HardwareProfile& machine);
  void tabulate_rest(const WeightSizes& weights, const HardwareProfile& machine);
  void tabulate_attention(const HardwareProfile& machine);
  Rates rates_at(DType type, double rows) const;
  double chosen_part(const Linear& linear, double rows) const;  // of the weights
  Rates rates_of(const Linear& linear, double rows) const;
  double logits_bytes(uint32_t logit_rows) const;  // that memory takes
  struct Calls {
    double all = 0, longest = 0;  // thread-seconds
    double count = 0, positions = 0;
    double fixed = 0;  // thread-seconds of `all` that do not depend on positions
    Calls& operator+=(const Calls& other);
  };
  Calls calls_of(const StepRows& sequence, const Group& group) const;
  double attention_seconds(const StepLoad& load) const;

  ModelConfig config_;
  Options options_;
  double away_ = 0;        // part of the weights that the last cache does not hold
  double speed_ = 1;       // threads of the measurement over ours, in rates of arithmetic
  double read_ = 1;        // bytes per second of reading the weights
  double read_scale_ = 1;  // threads of the measurement over ours, in rates of reading
  KernelRates rates_;
  std::vector<Linear> linear_;
  Rest rest_;
  std::vector<double> logits_bytes_;  // [max_logit_rows + 1]
  std::vector<Group> groups_;
  uint32_t call_tokens_ = 1;                // of one call of attention
  std::vector<StepSeconds> by_rows_;        // [max_rows + 1]
  std::vector<StepSeconds> by_logit_rows_;  // [max_logit_rows + 1]
  // Of one call with so many tokens, in thread-seconds: fixed, and per position in cache; and what a position
  // costs more that comes from memory. [call_tokens_ + 1]
  std::vector<double> call_, position_, from_memory_;
  DriftFilter drift_;
  ErrorWindow adapted_, unadapted_;
};

}  // namespace kvasir
