#include "engine/request_check.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvasir {
namespace {

constexpr size_t kMaxStopStrings = 16;

Status check_length(const Request& request, uint32_t max_model_len) {
  if (request.prompt.empty()) return invalid_argument("the prompt is empty");
  const uint64_t room = request.sampling.max_tokens == 0 ? 0 : 1;
  if (request.prompt.size() + room > max_model_len)
    return invalid_argument(
        fmt::format("the prompt has {} tokens, and {} more to generate: at most {} tokens fit in the context",
                    request.prompt.size(), request.sampling.max_tokens, max_model_len));
  return {};
}

}  // namespace

Status check_request(const Request& request, const RequestLimits& limits) {
  KVASIR_RETURN_IF_ERROR(check_length(request, limits.max_model_len));
  if (request.n == 0 || request.n > limits.max_num_seqs)
    return invalid_argument(
        fmt::format("n is {}; this engine runs 1 to {} sequences at once", request.n, limits.max_num_seqs));
  for (size_t i = 0; i < request.prompt.size(); ++i) {
    const TokenId token = request.prompt[i];
    if (token < 0 || static_cast<uint32_t>(token) >= limits.vocab_size)
      return invalid_argument(
          fmt::format("prompt token {} is {}; the vocabulary has {} tokens", i, token, limits.vocab_size));
  }
  if (request.stop.size() > kMaxStopStrings)
    return invalid_argument(
        fmt::format("{} stop strings; at most {} are taken", request.stop.size(), kMaxStopStrings));
  if (std::any_of(request.stop.begin(), request.stop.end(), [](const std::string& s) { return s.empty(); }))
    return invalid_argument("a stop string is empty");
  return {};
}

}  // namespace kvasir
