#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace kvasir {

// What a request asks of token choice. Ranges are checked at the API edge; here they hold.
struct SamplingParams {
  float temperature = 1.0f;  // 0: argmax
  int32_t top_k = 0;         // <= 0: off
  float top_p = 1.0f;
  float min_p = 0.0f;
  float repetition_penalty = 1.0f;  // over prompt and output
  float presence_penalty = 0.0f;    // over output
  float frequency_penalty = 0.0f;   // over output
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::optional<std::vector<TokenId>> allowed_tokens;
  uint64_t seed = 0;         // always set by the edge: the request's own or a fresh one
  uint32_t max_tokens = 16;  // > 0
  uint32_t min_tokens = 0;   // end tokens and stop_token_ids are masked until then
  bool ignore_eos = false;
  std::vector<TokenId> stop_token_ids;
  int32_t logprobs = -1;  // -1: none; k >= 0: the chosen token's and the k best, of the raw log-softmax
};

}  // namespace kvasir
