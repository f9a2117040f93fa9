#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "decoding/sampler_scratch.h"
#include "kernels/table.h"

namespace kvasir {

struct TokenLogprob {
  TokenId token = kNoToken;
  float logprob = 0.0f;  // natural log, of the model's raw distribution (before penalties and temperature)
};

struct SampledToken {
  TokenId token = kNoToken;
  float logprob = 0.0f;           // valid when logprobs were asked for
  std::vector<TokenLogprob> top;  // the best, descending; ties to the lower id
  uint32_t rank = 0;              // of a prompt token: its place among all, from 1 on; else 0
};

// The log-softmax of a raw row at `token`, and its `count` best (fewer when fewer are above -infinity). For
// prompt log-probabilities, and what Sampler reports. The row has no NaN and no +infinity and is 64-byte
// aligned, as kernels want it.
SampledToken score_token(std::span<const float> row, TokenId token, uint32_t count,
                         const KernelTable& kernels, SamplerScratch& scratch);

// The place of a token scored from this row in the order of `top`, from 1 on. Looks through the row only for
// one that is not among them.
uint32_t rank_of(std::span<const float> row, const SampledToken& scored);

}  // namespace kvasir
