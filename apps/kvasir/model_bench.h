#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/thread_pool.h"
#include "engine/engine.h"
#include "gguf/gguf_file.h"
#include "kernels/table.h"
#include "kvcache/kv_store.h"
#include "models/causal_lm.h"
#include "models/weight_sizes.h"
#include "perf/step_cost.h"

namespace kvasir {

// One measured shape: `batch` sequences, each with `depth` tokens already computed, reading `prompt` tokens
// or generating `generate` (one of them is 0).
struct BenchShape {
  uint32_t prompt = 0;
  uint32_t generate = 0;
  uint32_t batch = 1;
  uint32_t depth = 0;
  std::string name() const;  // "pp512", "tg64@b8", "tg64@d4096"
  // That are timed, of all sequences.
  uint64_t tokens() const { return (uint64_t{prompt} + generate) * batch; }
};

// One forward pass of a shape: every sequence computes `rows` tokens from position `first` on.
struct BenchStep {
  uint32_t first = 0;
  uint32_t rows = 0;
  bool logits = false;
};
// The passes that are timed: a prompt in chunks that together have at most `chunk` rows, logits after the
// last one; a generation token by token.
std::vector<BenchStep> timed_steps(const BenchShape& shape, uint32_t chunk);

struct BenchResult {
  BenchShape shape;
  std::vector<double> tokens_per_second;  // one per repetition
  double median = 0;
  double spread = 0;         // (max - min) / median
  StepProfile profile = {};  // of the timed repetitions, when profiling
  StepCost cost;             // of one repetition
  uint64_t steps = 0;
};

// Times forward passes alone, as llama-bench does: no tokenizer, no sampling, logits of the last row
// (reading) or of every sequence (generating). Token ids are a fixed pseudo-random sequence.
class ModelBench {
 public:
  struct Options {
    Isa isa;
    uint32_t threads = 1;
    uint32_t chunk = 512;  // rows per step
    uint32_t block_size = EngineConfig{}.block_size;
    KvType kv_type = KvType::kF16;
  };
  static Result<std::unique_ptr<ModelBench>> open(const std::string& path, const Options& options);

  // Runs a shape once to warm up and then `repetitions` times. Errors: more sequences than a step has rows, a
  // KV pool that the memory that is free cannot hold.
  Result<BenchResult> measure(const BenchShape& shape, uint32_t repetitions);

  // Called after every timed step with what it computed and the seconds it took.
  using OnStep = std::function<void(std::span<const StepRows>, uint32_t logit_rows, double seconds)>;
  void set_on_step(OnStep on_step) { on_step_ = std::move(on_step); }
  // Tokens before the timed ones are not computed: their KV is filled with ordinary numbers, which takes as
  // long to read.
  void set_filled_depth(bool on) { filled_depth_ = on; }

  // Whether results say where the time went. Two clock readings for each phase of a layer.
  void set_profiling(bool on) { profiling_ = on; }

  const ModelConfig& config() const { return model_->config(); }
  const WeightSizes& weights() const { return sizes_; }
  const Options& options() const { return options_; }
  ThreadPool& pool() { return pool_; }
  uint64_t file_bytes() const { return file_bytes_; }

 private:
  explicit ModelBench(const Options& options);
  Status make_store(const BenchShape& shape, uint32_t entries);
  void fill(const BenchShape& shape, uint32_t entries);
  void fill_depth();
  void step(const BenchShape& shape, const BenchStep& step);
  void timed_step(const BenchShape& shape, const BenchStep& step);
  StepCost cost(const BenchShape& shape, const std::vector<BenchStep>& steps) const;

  ThreadPool pool_;
  const KernelTable& kernels_;
  Options options_;
  bool profiling_ = false;
  bool filled_depth_ = false;
  OnStep on_step_;
  uint64_t file_bytes_ = 0;
  WeightSizes sizes_;
  std::unique_ptr<CausalLm> model_;
  std::unique_ptr<KvStore> store_;
  std::vector<std::vector<std::vector<BlockId>>> tables_;  // [sequence][group][entry * units]
  std::vector<std::vector<const BlockId*>> pointers_;      // [sequence][group]
  std::vector<BestLogits> best_;
};

}  // namespace kvasir
