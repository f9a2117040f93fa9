#pragma once

#include <vector>

#include "base/aligned_buffer.h"
#include "base/candidate.h"

namespace kvasir {

// Buffers of vocabulary size that a sampling thread keeps and lends to every Sampler it runs. Nothing in them
// outlives a call; they grow once and are not given back.
struct SamplerScratch {
  std::vector<Candidate> candidates;
  std::vector<float> block_max;  // largest logit of each block of the row
  std::vector<float> ranks;
  AlignedBuffer raw;  // the row as the model gave it; for kernels, hence aligned
};

}  // namespace kvasir
