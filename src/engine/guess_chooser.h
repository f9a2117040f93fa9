#pragma once

#include <cstdint>

#include "base/aligned_buffer.h"
#include "decoding/drafter.h"
#include "decoding/sampler_scratch.h"
#include "kernels/table.h"
#include "models/guess_head.h"

namespace kvasir {

// Chooses guesses from the logits of a GuessHead, each with its sequence's own sampler and the random numbers
// of the position that it is for.
class GuessChooser {
 public:
  // `vocab`: tokens of the target.
  GuessChooser(const KernelTable& kernels, uint32_t vocab);

  // The job's next guess; kNoToken where the logits allow none.
  TokenId choose(const DraftJob& job, const GuessHead& head, const float* logits);

 private:
  const KernelTable& kernels_;
  AlignedBuffer row_;  // of the target's vocabulary
  BestLogits best_;
  SamplerScratch scratch_;
};

}  // namespace kvasir
