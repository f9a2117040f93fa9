#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "decoding/draft_stats.h"
#include "decoding/sampler.h"
#include "decoding/sampling_params.h"

namespace kvasir {

enum class FinishReason : uint8_t { kNone, kStop, kLength, kCancelled, kError };

// What the engine says about one choice after a step: tokens, the text they released, and the end of it. Text
// is always valid UTF-8 and concatenates to the whole answer. One event may carry several tokens.
struct TokenEvent {
  uint32_t choice = 0;
  std::vector<TokenId> tokens;
  std::vector<SampledToken> logprobs;  // one per token when asked for
  std::string text;
  FinishReason finish = FinishReason::kNone;
  // Set with kStop: which stop string (bytes) or stop token id ended it, if not an end-of-text token.
  std::optional<std::string> stop_string;
  std::optional<TokenId> stop_token;
  Status error;  // set with kError
  // Totals of the choice so far.
  uint32_t prompt_tokens = 0;
  uint32_t cached_tokens = 0;
  uint32_t output_tokens = 0;
  DraftCounts drafting;
};

// Receives a request's events, on the engine thread, in order per choice. Must not block and not call the
// engine back; servers post to their own executor. The last event of each choice has finish != kNone.
using TokenSink = std::function<void(TokenEvent&&)>;

// One request: a prompt and what to do with it.
struct Request {
  std::string external_id;      // for logs
  std::vector<TokenId> prompt;  // not empty
  SamplingParams sampling;
  uint32_t n = 1;
  std::vector<std::string> stop;
  bool include_stop = false;
  bool special_text = false;  // keep control tokens in the text
  std::string cache_salt;     // requests share KV only with the same salt
  uint32_t drafters = ~0u;    // bit i: the engine's drafter i may guess for it; 0: no speculation
  int32_t priority = 0;       // the lower is handled earlier
  std::string user;           // who shares the engine fairly with others; "" is somebody, too
  double weight = 1;          // of the user's share, above 0
  // Prompt logprobs (echo): the raw log-probability of every prompt token after the first, and its
  // prompt_logprobs best. Positions are then computed afresh, not taken from the prefix cache.
  int32_t prompt_logprobs = -1;
  std::function<void(std::vector<SampledToken>&&)> prompt_logprobs_sink;
};

// Times of a request in seconds of the monotonic clock.
struct RequestTimes {
  double arrived = 0, scheduled = 0, first_token = 0, finished = 0;
};

}  // namespace kvasir
