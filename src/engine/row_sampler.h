#pragma once

#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "decoding/sampler_scratch.h"
#include "engine/choice.h"
#include "engine/model_runner.h"
#include "tokenizer/tokenizer.h"

namespace kvasir {

// Chooses the tokens that a step gives its sequences, each sequence on whichever thread it falls to: a draw
// depends on its own row, history and key alone, so who draws cannot touch a token.
//
// A sequence with a draft has a row for its last known token and one for each guess. Its rows are sampled one
// after the other, as they would be in steps of their own, for as long as the token chosen is the one that
// was guessed there; so the tokens are those of a run without drafts, whoever guessed, and only their number
// depends on the guesses.
class RowSampler {
 public:
  struct Advance {
    Choice* choice;
    uint32_t first = 0, rows = 0;  // among the logits added
    // By run().
    uint32_t tokens = 0;  // chosen and taken into the choice
    FinishReason finish = FinishReason::kNone;
    Status error;  // with kError
  };

  // At most `max_sequences` sequences with `max_rows` rows in a step. Pool and tokenizer outlive the sampler.
  // With `rejection`, guesses are accepted as SpeculationConfig::Accept::kRejection says.
  RowSampler(ThreadPool& pool, const Tokenizer& tokenizer, uint32_t max_sequences, uint32_t max_rows,
             uint32_t max_model_len, bool rejection);

  void clear();
  // A sequence with its first row; then the rows of its draft.
  void add(Choice& choice, const RowLogits& logits);
  void add_row(const RowLogits& logits);
  // Chooses for all; returns them in the order of adding. The logits are scratch afterwards.
  std::span<Advance> run();

  // One sequence with one row at once, on this thread.
  Advance advance(Choice& choice, const RowLogits& logits);
  // For other work of the calling thread between runs.
  SamplerScratch& scratch() { return scratch_[0]; }

 private:
  void advance(Advance& sequence, std::span<const RowLogits> rows, SamplerScratch& scratch) const;

  ThreadPool& pool_;
  const Tokenizer& tokenizer_;
  uint32_t max_model_len_;
  bool rejection_;
  std::vector<SamplerScratch> scratch_;  // one per thread
  std::vector<Advance> sequences_;
  std::vector<RowLogits> rows_;
};

}  // namespace kvasir
