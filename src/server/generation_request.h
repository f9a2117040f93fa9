#pragma once

#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/request.h"

namespace kvasir {

// A chat completion or text completion request, typed and checked as far as that goes without the model
// (request_fields.h). What depends on the model (token ids, the context window) is checked in prompt.h.
struct GenerationRequest {
  bool chat = false;
  std::string model;  // "" for whatever is served

  // Text completions.
  boost::json::value prompt;  // string | [string] | [int] | [[int]]
  bool echo = false;
  bool add_special_tokens = true;
  bool parse_special = true;

  // Chat.
  boost::json::array messages;
  boost::json::array tools;
  bool use_tools = true;  // tool_choice is not "none"
  bool parallel_tool_calls = true;
  std::optional<bool> add_generation_prompt;
  bool continue_final_message = false;
  boost::json::object template_variables;  // chat_template_kwargs
  boost::json::array documents;

  // Choosing tokens. sampling.seed, .max_tokens and .logprobs are filled in by finish_request() and prompt.h.
  SamplingParams sampling;
  std::optional<int64_t> seed;
  std::optional<int64_t> max_tokens;
  std::string_view max_tokens_name = "max_tokens";  // as the request spells it; of the table of fields
  int64_t n = 1;
  std::optional<int64_t> best_of;  // at least n
  std::vector<std::string> stop;
  bool include_stop = false;
  bool skip_special_tokens = true;
  std::string cache_salt;
  std::string speculate = "auto";
  std::string user;                 // as the request names him
  std::optional<int32_t> priority;  // the lower is handled earlier; settled by settle_owner(),
  std::string owner;                // which also says who the request's user is for the engine,
  double weight = 1;                // and of what weight

  // The answer's form.
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;
  bool timings = false;
  bool chat_logprobs = false;
  int64_t top_logprobs = 0;
  int64_t logprobs = -1;         // text completions; -1: none
  int64_t prompt_logprobs = -1;  // -1: none
  bool token_ids = false;        // return_token_ids
  bool tokens_as_ids = false;    // "token_id:N" instead of text in logprobs
  std::string request_id;

  // Answers that are generated per prompt; n of them are given.
  int64_t drawn() const { return best_of.value_or(n); }
  bool wants_logprobs() const { return chat ? chat_logprobs : logprobs >= 0; }
};

}  // namespace kvasir
