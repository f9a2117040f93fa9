#pragma once

#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "decoding/drafter.h"
#include "decoding/sampler_scratch.h"
#include "kernels/best_logits.h"
#include "kernels/table.h"
#include "models/guess_head.h"

namespace kvasir {

// How many logits a guess takes: what its sampler needs to choose it, and the second best to grade it.
uint32_t logits_to_grade(const DraftJob& job);
// The grade of a token chosen from these: by how much it leads the others; the lowest where it is not the
// best of them.
uint8_t grade_of(const BestLogits& best, TokenId chosen);
// Whether one more guess is wanted behind those of the job: there is room, the last one ends no text, and
// what it would rest on is sure enough. Notes in the draft if it is not.
bool more_guesses_wanted(const DraftJob& job, std::span<const TokenId> end_tokens);

// Chooses guesses from the logits of a GuessHead, each with its sequence's own sampler and the random numbers
// of the position that it is for.
class GuessChooser {
 public:
  // `vocab`: tokens of the target.
  GuessChooser(const KernelTable& kernels, uint32_t vocab);

  // Adds the job's next guess to its draft; none where the logits allow none.
  void choose(const DraftJob& job, const GuessHead& head, const float* logits);

 private:
  const KernelTable& kernels_;
  AlignedBuffer row_;  // of the target's vocabulary
  BestLogits best_;
  SamplerScratch scratch_;
};

}  // namespace kvasir
