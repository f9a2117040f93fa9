#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "decoding/sampler_scratch.h"
#include "engine/choice.h"
#include "engine/model_runner.h"

namespace kvasir {

// Samples the rows of a step, each on whichever thread it falls to: a draw depends on its own row, history
// and key alone, so who draws cannot touch a token.
class RowSampler {
 public:
  struct Row {
    Choice* choice;
    RowLogits logits;             // scratch afterwards
    Result<SampledToken> chosen;  // by run()
  };

  // At most `max_rows` rows in a step. The pool outlives the sampler.
  RowSampler(ThreadPool& pool, uint32_t max_rows);

  void clear() { rows_.clear(); }
  void add(Choice& choice, const RowLogits& logits) { rows_.push_back({&choice, logits, SampledToken()}); }
  // Chooses the next token of every row; returns them in the order of adding.
  std::span<Row> run();

  // One row at once, on this thread.
  Result<SampledToken> sample(const Choice& choice, const RowLogits& logits) {
    return sample(choice, logits, scratch_[0]);
  }
  // For other work of the calling thread between runs.
  SamplerScratch& scratch() { return scratch_[0]; }

 private:
  static Result<SampledToken> sample(const Choice& choice, const RowLogits& logits, SamplerScratch& scratch);

  ThreadPool& pool_;
  std::vector<SamplerScratch> scratch_;  // one per thread
  std::vector<Row> rows_;
};

}  // namespace kvasir
