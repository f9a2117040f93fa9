#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "decoding/sampler.h"
#include "engine/request.h"
#include "engine/sequence.h"
#include "tokenizer/text_assembler.h"
#include "tokenizer/tokenizer.h"

namespace kvasir {

struct ActiveRequest;

// One of a request's n answers: a sequence, how its tokens are chosen, and the text they make.
struct Choice final : Sequence {
  Choice(ActiveRequest& owner, uint32_t choice, Sampler chooser, TextAssembler assembler, BlockTable blocks,
         std::vector<TokenId> known, uint32_t prompt);

  ActiveRequest& request;
  uint32_t index;
  Sampler sampler;
  TextAssembler text;
  uint32_t output_tokens = 0;
  double last_token_time = 0;
  static constexpr uint32_t kNoSlot = UINT32_MAX;
  uint32_t draft_slot = kNoSlot;  // of the speculator
  DraftCounts drafting;
  TokenEvent event;  // what is to be told next

  // Appends a chosen token to the sequence, its text and the event, and says whether that ends the choice.
  // Where several ends meet, the first of these counts: end token, stop token, stop string, then max_tokens
  // or max_model_len (length). The text of an end token is not kept, that of a stop token only with
  // include_stop.
  FinishReason accept(SampledToken&& chosen, const Tokenizer& tokenizer, uint32_t max_model_len);
  // Sets the totals of the event; what is told then is event, which starts afresh.
  TokenEvent take_event();
};

// A request in the engine.
struct ActiveRequest {
  RequestId id{};
  Request request;  // its prompt has moved to the choices
  TokenSink sink;
  RequestTimes times;
  uint32_t unfinished = 0;  // choices, also those that have not parted from choice 0 yet
  std::vector<std::unique_ptr<Choice>> choices;
  std::vector<SampledToken> prompt_logprobs;
};

}  // namespace kvasir
