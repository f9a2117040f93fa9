#include "engine/request_check.h"

#include <fmt/format.h>

#include <algorithm>
#include <span>

namespace kvasir {
namespace {

constexpr size_t kMaxStopStrings = 16;

Status check_length(const Request& request, uint32_t max_model_len) {
  if (request.prompt.empty()) return invalid_argument("the prompt is empty").about("prompt");
  const uint64_t room = request.sampling.max_tokens == 0 ? 0 : 1;
  if (request.prompt.size() + room > max_model_len)
    return invalid_argument(
               fmt::format(
                   "the prompt has {} tokens, and {} more to generate: at most {} tokens fit in the context",
                   request.prompt.size(), request.sampling.max_tokens, max_model_len))
        .about("prompt");
  return {};
}

bool contains(std::span<const TokenId> list, TokenId token) {
  return std::find(list.begin(), list.end(), token) != list.end();
}

// The masks of the sampler must leave a token to choose at every position (decoding/sampler.h, step 4).
Status check_masks(const SamplingParams& p, std::span<const TokenId> end_tokens) {
  if (!p.allowed_tokens || p.max_tokens == 0) return {};
  const bool some_left = std::any_of(p.allowed_tokens->begin(), p.allowed_tokens->end(), [&](TokenId token) {
    const bool ends = contains(end_tokens, token);
    const bool late = p.min_tokens != 0 && (ends || contains(p.stop_token_ids, token));
    return !late && !(ends && p.ignore_eos);
  });
  if (some_left) return {};
  return invalid_argument(fmt::format("allowed_token_ids holds only tokens that end the answer ({} of them), "
                                      "and min_tokens {} or ignore_eos forbids those",
                                      p.allowed_tokens->size(), p.min_tokens))
      .about("allowed_token_ids");
}

}  // namespace

Status check_request(const Request& request, const RequestLimits& limits) {
  KVASIR_RETURN_IF_ERROR(check_length(request, limits.max_model_len));
  if (request.n == 0 || request.n > limits.max_num_seqs)
    return invalid_argument(fmt::format("n is {}; this engine runs 1 to {} sequences at once", request.n,
                                        limits.max_num_seqs))
        .about("n");
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const TokenId token = request.prompt[i];
    if (token < 0 || static_cast<uint32_t>(token) >= limits.vocab_size)
      return invalid_argument(fmt::format("prompt token {} is {}; the vocabulary has {} tokens", i, token,
                                          limits.vocab_size))
          .about("prompt");
  }
  if (request.stop.size() > kMaxStopStrings)
    return invalid_argument(
               fmt::format("{} stop strings; at most {} are taken", request.stop.size(), kMaxStopStrings))
        .about("stop");
  if (std::any_of(request.stop.begin(), request.stop.end(), [](const std::string& s) { return s.empty(); }))
    return invalid_argument("a stop string is empty").about("stop");
  return check_masks(request.sampling, limits.end_tokens);
}

}  // namespace kvasir
