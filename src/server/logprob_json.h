#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/json_writer.h"
#include "tokenizer/tokenizer.h"

namespace kvasir {

// A finite number for JSON: log-probabilities of minus infinity are written as -9999, as vLLM does.
float json_logprob(float logprob);

// Bytes that begin a character: over the tokens of a text this adds up to its number of characters.
int64_t character_starts(std::string_view bytes);

// Writes log-probabilities in OpenAI's two forms, and prompt log-probabilities in vLLM's.
class LogprobJson {
 public:
  // tokens_as_ids: tokens are written "token_id:N".
  LogprobJson(const Tokenizer& tokenizer, bool tokens_as_ids)
      : tokenizer_(tokenizer), as_ids_(tokens_as_ids) {}

  // Chat: {"content": [{"token", "logprob", "bytes", "top_logprobs": [...]}], "refusal": null}.
  std::string chat(std::span<const SampledToken> tokens) const;

  // Text completions: {"tokens", "token_logprobs", "top_logprobs", "text_offset"}. `tokens` may begin with
  // the prompt's, whose first has no log-probability (without_logprob_first). `offset` is the number of
  // characters before the first token (below 0: the text begins inside the tokens) and is moved on; special:
  // control tokens count as text. A token that is not valid UTF-8 on its own is written "bytes:\xNN", as
  // OpenAI does.
  std::string legacy(std::span<const SampledToken> tokens, bool without_logprob_first, bool special,
                     int64_t* offset) const;

  // vLLM's prompt_logprobs: [null, {"id": {"logprob", "rank", "decoded_token"}}, ...].
  std::string prompt(std::span<const SampledToken> after_first) const;

 private:
  std::string token_name(TokenId id) const;  // valid UTF-8, for the chat form
  std::string legacy_name(TokenId id) const;
  void chat_token(JsonWriter& json, TokenId id, float logprob) const;
  void legacy_top(JsonWriter& json, const SampledToken& token) const;

  const Tokenizer& tokenizer_;
  bool as_ids_;
};

}  // namespace kvasir
