#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "decoding/sampling_params.h"
#include "kernels/table.h"

namespace kvasir {

struct TokenLogprob {
  TokenId token = kNoToken;
  float logprob = 0.0f;  // natural log, of the model's raw distribution (before penalties and temperature)
};

struct SampledToken {
  TokenId token = kNoToken;
  float logprob = 0.0f;             // valid when params.logprobs >= 0
  std::vector<TokenLogprob> top;    // the params.logprobs best, descending; ties to the lower id
};

// Chooses the tokens of one sequence. Its result for a row is a function of (logits, history, params, seed, choice,
// position) alone: no draw depends on an earlier one, so a preempted, batched or speculated run chooses alike.
//
// Order of operations on a row (documented in docs/numerics.md):
//   1 a NaN anywhere is an error (the request ends, others do not notice); raw logprobs are taken here when asked for
//   2 logit_bias, 3 repetition then frequency then presence penalty, 4 mask: allowed_tokens, min_tokens,
//   5 temperature 0: argmax, ties to the lowest id; else divide by temperature
//   6 top_k, 7 top_p, 8 min_p (vLLM applies min_p before top-k/top-p; on the softmax over what survived so far)
//   9 exponential race: argmin over survivors of -log(u_i)/p_i, u_i = Philox(key = seed, counter = (token i, position,
//     choice)); a token's draw does not depend on the other tokens.
class Sampler {
 public:
  // end_tokens: masked until min_tokens, and for ever with ignore_eos unset they simply end the sequence.
  Sampler(SamplingParams params, uint32_t choice, uint32_t vocab_size, std::span<const TokenId> end_tokens,
          const KernelTable& kernels);

  // The history that penalties look at. Called for each prompt token once, then for each committed output token.
  void observe_prompt(std::span<const TokenId> tokens);
  void observe_output(TokenId token);

  // Samples the token that follows the `output_count` tokens already committed. `logits` (vocab_size floats) is scratch
  // afterwards. Position = prompt length + output_count. kInternal when the row holds a NaN or nothing can be chosen.
  Result<SampledToken> sample(std::span<float> logits, uint32_t position, uint32_t output_count);

  const SamplingParams& params() const { return params_; }

 private:
  SamplingParams params_;
  uint32_t choice_;
  uint32_t vocab_size_;
  std::vector<TokenId> end_tokens_;
  const KernelTable& kernels_;
  struct History;
  std::shared_ptr<History> history_;
};

}  // namespace kvasir
