#include "engine/choice.h"

#include <algorithm>
#include <utility>

namespace kvasir {
namespace {

bool contains(const std::vector<TokenId>& list, TokenId token) {
  return std::find(list.begin(), list.end(), token) != list.end();
}

}  // namespace

Choice::Choice(ActiveRequest& owner, uint32_t choice, Sampler chooser, TextAssembler assembler,
               BlockTable blocks, std::vector<TokenId> known, uint32_t prompt)
    : Sequence(std::move(blocks), std::move(known), prompt),
      request(owner),
      index(choice),
      sampler(std::move(chooser)),
      text(std::move(assembler)) {
  event.choice = choice;
}

FinishReason Choice::accept(SampledToken&& chosen, const Tokenizer& tokenizer, uint32_t max_model_len) {
  const SamplingParams& params = sampler.params();
  const TokenId token = chosen.token;
  tokens.push_back(token);
  ++output_tokens;
  sampler.observe_output(token);
  event.tokens.push_back(token);
  if (params.logprobs >= 0) event.logprobs.push_back(std::move(chosen));

  if (!params.ignore_eos && contains(tokenizer.end_tokens(), token)) {
    text.finish(&event.text);
    return FinishReason::kStop;
  }
  const bool is_stop_token = contains(params.stop_token_ids, token);
  if (!is_stop_token || request.request.include_stop) {
    const int stop = text.push(token, &event.text);
    if (stop >= 0) {
      event.stop_string = request.request.stop[static_cast<size_t>(stop)];
      return FinishReason::kStop;
    }
  }
  if (is_stop_token) {
    event.stop_token = token;
    text.finish(&event.text);
    return FinishReason::kStop;
  }
  if (output_tokens >= params.max_tokens || known() >= max_model_len) {
    text.finish(&event.text);
    return FinishReason::kLength;
  }
  return FinishReason::kNone;
}

TokenEvent Choice::take_event() {
  event.prompt_tokens = prompt_length;
  event.cached_tokens = cached_tokens;
  event.output_tokens = output_tokens;
  event.drafting = drafting;
  TokenEvent out = std::exchange(event, TokenEvent{});
  event.choice = index;
  return out;
}

}  // namespace kvasir
