#pragma once

#include <vector>

#include "base/aligned_buffer.h"
#include "base/ids.h"

namespace kvasir {

// A token still in the running, with its logit.
struct Candidate {
  float x = 0.0f;
  TokenId id = kNoToken;
};

// The order in which tokens are preferred: by logit, ties to the lower id.
inline bool ranks_before(const Candidate& a, const Candidate& b) {
  return a.x > b.x || (a.x == b.x && a.id < b.id);
}

// Buffers of vocabulary size that a sampling thread keeps and lends to every Sampler it runs. Nothing in them
// outlives a call; they grow once and are not given back.
struct SamplerScratch {
  std::vector<Candidate> candidates;
  std::vector<float> block_max;  // largest logit of each block of the row
  std::vector<float> ranks;
  AlignedBuffer raw;  // the row as the model gave it; for kernels, hence aligned
};

}  // namespace kvasir
