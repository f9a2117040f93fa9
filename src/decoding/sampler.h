#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "decoding/logprobs.h"
#include "decoding/race.h"
#include "decoding/sampler_scratch.h"
#include "decoding/sampling_params.h"
#include "decoding/token_counts.h"
#include "kernels/best_logits.h"
#include "kernels/table.h"

namespace kvasir {

// Chooses the tokens of one sequence. Its result for a row is a function of (logits, history, params, seed,
// choice, position) alone: no draw depends on an earlier one, so a preempted, batched or speculated run
// chooses alike.
//
// Order of operations on a row (documented in docs/numerics.md):
//   1 a NaN or +infinity anywhere is an error (the request ends, others do not notice); raw logprobs are
//     those of the row as it is here
//   2 logit_bias, 3 repetition then frequency then presence penalty, 4 mask: allowed_tokens; end tokens and
//     stop_token_ids until min_tokens; end tokens always with ignore_eos
//   5 temperature below 1e-5: argmax, ties to the lowest id; else
//     top_k: exactly the k best, ties to the lower id
//   6 x = (x - max) / temperature
//   7 top_p: the shortest run of best tokens whose probability, on the softmax over what survived so far, is
//   at least
//     top_p (less a millionth, for rounding); never none
//   8 min_p: tokens at least min_p times as probable as the best (vLLM applies min_p before top_k and top_p)
//   9 exponential race over the survivors (decoding/race.h)
//
// Temperature 0 is one look for unsound values and one argmax. Nothing sorts the vocabulary, and nothing is
// allocated but the list of top logprobs and room for new distinct tokens in the history.
class Sampler {
 public:
  // `choice` is the index among a request's n. end_tokens: those that end a generation. `kernels` outlives
  // it.
  Sampler(SamplingParams params, uint32_t choice, uint32_t vocab_size, std::span<const TokenId> end_tokens,
          const KernelTable& kernels);

  // The history that penalties look at. Called for each prompt token once, then for each committed output
  // token. Costs nothing when no penalty is set.
  void observe_prompt(std::span<const TokenId> tokens);
  void observe_output(TokenId token);

  // Samples the token that follows the `output_count` tokens already committed. `logits` (vocab_size floats)
  // is scratch afterwards. Position = prompt length + output_count. `scratch` is the calling thread's own.
  // kInternal when the row holds a NaN or +infinity or is -infinity throughout; kInvalidArgument when the
  // request's own masks leave nothing. With a `guess` the race of step 9 is replaced by accepting the guess
  // or drawing in its place (decoding/rejection.h): another draw from the same distribution, which is the
  // guess as often as can be.
  Result<SampledToken> sample(std::span<float> logits, uint32_t position, uint32_t output_count,
                              SamplerScratch& scratch, TokenId guess = kNoToken) const;

  // How many of a row's best logits sample() needs: kAllLogits, or few where all that is asked is an argmax
  // or a top_k, perhaps without end tokens.
  uint32_t logits_wanted(uint32_t output_count) const;
  // The same token from those.
  Result<SampledToken> sample(const BestLogits& best, uint32_t position, uint32_t output_count,
                              SamplerScratch& scratch, TokenId guess = kNoToken) const;

  // The token alone, without what is said about it: for guesses of what sample() will choose, from another
  // model's logits. The same position names the same random numbers, so that models that agree roughly choose
  // the same token mostly (Daliri, Musco and Suresh, arXiv 2408.07978). The history is that of the committed
  // tokens: penalties do not see the guesses before this one. `best` may hold more than is needed.
  uint32_t logits_to_choose(uint32_t output_count) const;
  Result<TokenId> choose(std::span<float> logits, uint32_t position, uint32_t output_count,
                         SamplerScratch& scratch) const;
  Result<TokenId> choose(const BestLogits& best, uint32_t position, uint32_t output_count,
                         SamplerScratch& scratch) const;

  const SamplingParams& params() const { return params_; }

 private:
  void adjust(std::span<float> logits) const;
  void mask(std::span<float> logits, uint32_t output_count, SamplerScratch& scratch) const;
  // What may not be chosen now, apart from allowed_tokens; each list ascending, perhaps overlapping.
  std::array<std::span<const TokenId>, 2> masked_tokens(uint32_t output_count) const;
  Status nothing_left(uint32_t position, uint32_t output_count) const;
  Status check_row(std::span<const float> logits, uint32_t position) const;
  Result<TokenId> choose_sound(std::span<float> logits, uint32_t position, uint32_t output_count,
                               SamplerScratch& scratch, TokenId guess) const;
  Result<TokenId> choose_best(const BestLogits& best, uint32_t position, uint32_t output_count,
                              SamplerScratch& scratch, TokenId guess) const;
  bool greedy() const;
  bool by_rank() const;
  float race_floor() const;
  uint64_t mass_share(double total) const;
  TokenId draw_ranked(float max, const RaceKey& key, SamplerScratch& scratch, TokenId guess) const;
  TokenId draw_row(std::span<float> row, TokenId best, const RaceKey& key, SamplerScratch& scratch,
                   TokenId guess) const;
  bool penalises() const;

  SamplingParams params_;
  uint32_t choice_;
  uint32_t vocab_size_;
  std::vector<TokenId> end_tokens_;
  std::vector<TokenId> late_tokens_;  // end tokens and stop_token_ids: not before min_tokens
  const KernelTable* kernels_;
  TokenCounts history_;
};

}  // namespace kvasir
