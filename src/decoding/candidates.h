#pragma once

#include <cstddef>
#include <span>

#include "decoding/sampler_scratch.h"

namespace kvasir {

// Puts the `k` best tokens of the row (ranks_before) into scratch.candidates, in no particular order; fewer
// when the row has fewer above -infinity. One linear pass over the row for maxima of blocks, then only the
// blocks that can matter: no sort of the vocabulary.
void gather_largest(std::span<const float> row, size_t k, SamplerScratch& scratch);

// Keeps the `k` best candidates, in no particular order.
void keep_best(std::vector<Candidate>& candidates, size_t k);

// Weights for nucleus sampling: e^x for x <= 0 in fixed point, so that sums do not depend on their order.
inline constexpr double kMassOne = 0x1p40;
uint64_t mass_of(float x);
uint64_t total_mass(std::span<const Candidate> candidates);

// Keeps the shortest run of best candidates whose masses reach `target`, never none. Their logits are
// relative to the maximum (<= 0). Expected linear time, whatever the size of the set.
void keep_nucleus(std::vector<Candidate>& candidates, uint64_t target);

}  // namespace kvasir
