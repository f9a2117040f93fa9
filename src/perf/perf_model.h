#pragma once

#include <array>
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

// Rows of a sequence that want logits: `whole` of them all, the others their best few (ForwardBatch).
struct LogitRows {
  LogitRows(uint32_t all_rows = 0, uint32_t whole_rows = 0) : rows(all_rows), whole(whole_rows) {}
  uint32_t rows;
  uint32_t whole;
};

// The work of a step as far as its time depends on it; made by StepCosts::add(), one sequence after the
// other.
struct StepLoad {
  // Groups of layers that are told apart; further ones count as the last.
  static constexpr uint32_t kWindows = 2;
  struct Attention {
    double all = 0;      // of all threads together, seconds
    double longest = 0;  // of that, what one thread does alone
  };
  // What a row adds that follows another of its sequence, by window.
  using FurtherRow = std::array<Attention, kWindows>;

  // So many sequences in place of each.
  void repeat(uint32_t times);
  // `count` more rows, of sequences that it has; all want logits.
  void add_rows(uint32_t count, const FurtherRow& each);

  uint32_t rows = 0;
  uint32_t sequences = 0;
  uint32_t most_rows = 0;       // of one sequence
  uint32_t most_positions = 0;  // that a sequence has after the step
  LogitRows logits = {};
  std::array<Attention, kWindows> attention = {};
  uint32_t left_out = 0;          // rows that want no logits,
  double left_out_attention = 0;  // and what their attention in one layer takes of all threads, seconds
};

// What schedulers ask: the time of steps they might take.
class StepCosts {
 public:
  virtual ~StepCosts() = default;
  // `load` with one more sequence.
  virtual void add(StepLoad& load, const StepRows& sequence, LogitRows logits) const = 0;
  virtual double seconds(const StepLoad& load) const = 0;

  // For StepLoad::add_rows(): what each of two rows adds that follow one after `context` tokens.
  StepLoad::FurtherRow further_row(uint32_t context) const;

  // The most rows, at most `limit`, that a sequence with `context` tokens may add to `load` so that the step
  // takes `target` seconds at most; 0 where not even one fits. Rows after the first `unscored` want logits,
  // and one in any case.
  uint32_t most_rows(const StepLoad& load, uint32_t context, uint32_t limit, double target,
                     uint32_t unscored = UINT32_MAX) const;
};

struct StepPrediction {
  double seconds = 0;
  uint32_t rows = 0;
  StepSeconds parts{};      // adds up to it
  StepSeconds unadapted{};  // as measured rates alone say
  StepPart bound() const;   // the largest part
};

// Predicts the seconds of a forward pass, from what the kernels were measured to reach on this machine
// (KernelRates) and the model's shapes. With R rows, T threads:
//
//   linear     per matrix: n * k * rate(format, R), between the rate in cache and from memory by how much of
//              the weights the last cache holds (read off the machine's read rates; measured memory that is
//              as large as the weights has the same part in it), times how unevenly its phase's panels go
//              into threads; per phase what it takes to begin and to meet at its end
//   experts    the same of the part of the experts that R rows are expected to choose, each with its part of
//              the rows; a layer's router is a phase of its own
//   logits     rows that want all of them: written to memory. The others: looked through in cache
//   attention  per sequence, layer and KV head, in calls of at most 96 query rows: call(rows) + positions *
//              rate(rows); positions as the window leaves them. The KV of a sequence comes from memory once,
//              that of a shared prefix once for all; so do the tiles of positions that K and V are stored to.
//              The threads take calls as they become free: a step waits for the longest
//   row-wise   ceil(R / T) times the values of each kind times their rates, ceil because rows are not
//              divided; R times for norms that each thread does for itself; what lies between q, k, v and
//              attention goes with attention's calls in a step of single decodes
//   less       what the last layer leaves out behind its K and V: rows that want no logits (LastRows)
//   barriers   those outside of phases of matrices; one more per layer of which many rows chose experts
//
// Then times the factors, of each part and of the rows, that DriftFilter has learnt from observe().
// Everything that depends on R alone is tabulated at construction; predict() allocates nothing. Not
// thread-safe.
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

  void add(StepLoad& load, const StepRows& sequence, LogitRows logits) const override;
  double seconds(const StepLoad& load) const override { return predict(load).seconds; }

  StepPrediction predict(const StepLoad& load) const;
  StepPrediction predict(std::span<const StepRows> sequences, LogitRows logits) const;
  // Adds what predict()'s `unadapted` is made of. At most max_rows and max_logit_rows.
  void add_terms(std::span<const StepRows> sequences, LogitRows logits, StepTerms& terms) const;

  // What the step of a prediction took. Adapts, and counts the error of both.
  void observe(const StepPrediction& prediction, double measured);
  double factor(StepPart part) const { return drift_.factor(part); }
  double rows_factor(uint32_t rows) const { return drift_.rows_factor(rows); }

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
  // Seconds of row-wise work, in all layers.
  struct Rest {
    double norms = 0;    // per row of a thread, the two norms of each layer
    double alone = 0;    // per row of a thread, everything else
    double shared = 0;   // per row, of all threads together
    double ready = 0;    // per row of a thread, what comes between q, k, v and attention
    double head = 0;     // per logit row of a thread
    double scan = 0;     // per logit row of which the best are kept, of all threads together
    double barrier = 0;  // of one
    double phases = 0;   // beginnings and ends of the layers' matrices
    double phase = 0;    // of one
  };
  void tabulate_linear(const WeightSizes& weights, const HardwareProfile& machine);
  void tabulate_rest(const WeightSizes& weights, const HardwareProfile& machine);
  void tabulate_attention(const HardwareProfile& machine);
  Rates rates_at(DType type, double rows) const;
  double chosen_part(const Linear& linear, double rows) const;  // of the weights
  Rates rates_of(const Linear& linear, double rows) const;
  double phase_unevenness(const WeightSizes::Matrices& matrix) const;
  double logits_bytes(uint32_t whole_rows) const;  // that memory takes
  bool norms_alone(uint32_t rows) const;
  double barriers_of(const StepLoad& load) const;
  // Whether each row is made ready with its attention in the layers of a group, as AttentionPlan has it.
  bool rows_stand_alone(const StepLoad& load, const Group& group) const;
  double ready_part(const StepLoad& load) const;  // of the layers: those where rows do not stand alone
  struct Calls {
    double all = 0, longest = 0;  // thread-seconds
    double count = 0, positions = 0;
    double fixed = 0;  // thread-seconds of `all` that do not depend on positions
    Calls& operator+=(const Calls& other);
  };
  Calls calls_of(const StepRows& sequence, const Group& group) const;
  double positions_of(const StepRows& sequence, uint32_t tokens, uint32_t done, const Group& group) const;
  double attention_seconds(const StepLoad& load) const;
  double rest_seconds(const StepLoad& load) const;
  // `load` with sequences that want so many logits together: one each as far as they go, the rest in order.
  void add_all(StepLoad& load, std::span<const StepRows> sequences, LogitRows logits) const;
  // What rows that end with the last layer's K and V would take behind them.
  StepSeconds left_out_seconds(const StepLoad& load) const;

  ModelConfig config_;
  Options options_;
  // How far rates go from those in cache to those from memory: by the part of the weights that the last cache
  // does not hold, over the same part of the memory that was measured.
  double away_ = 0;
  double speed_ = 1;       // threads of the measurement over ours, in rates of arithmetic
  double read_ = 1;        // bytes per second of reading the weights
  double read_scale_ = 1;  // threads of the measurement over ours, in rates of reading
  KernelRates rates_;
  std::vector<Linear> linear_;
  Rest rest_;
  bool post_norms_ = false;
  double norms_ = 0;                        // of all layers, of rows that matrices read
  std::vector<double> logits_bytes_;        // [max_logit_rows + 1]
  std::vector<Group> groups_;               // at most StepLoad::kWindows
  uint32_t call_tokens_ = 1;                // of one call of attention
  std::vector<StepSeconds> by_rows_;        // [max_rows + 1]
  std::vector<StepSeconds> by_logit_rows_;  // [max_logit_rows + 1]
  double last_part_ = 0;                    // of the layers' weights, those behind the last one's K and V
  size_t last_group_ = 0;
  // Of one call with so many tokens, in thread-seconds: fixed, and per position in cache; and what a call and
  // a position cost more whose KV comes from memory. [call_tokens_ + 1]
  std::vector<double> call_, position_, call_from_memory_, from_memory_;
  double open_ = 0;  // thread-seconds more, for one KV head, to store into a tile that lies in memory
  DriftFilter drift_;
  ErrorWindow adapted_, unadapted_;
};

}  // namespace kvasir
