#pragma once

#include <boost/json/value.hpp>
#include <string>

#include "server/api_error.h"
#include "server/prompt.h"
#include "server/served_model.h"

namespace kvasir {

// POST /tokenize in both dialects, told apart by the key that is there: vLLM's {"prompt"} or {"messages"} and
// llama.cpp's
// {"content"}. The answer holds the members of both that apply.
Problem tokenize(const ServedModel& model, const PromptBuilder& prompts, const boost::json::value& body,
                 std::string* answer);

// POST /detokenize: {"tokens": [id]} to {"prompt", "content"}.
Problem detokenize(const ServedModel& model, const boost::json::value& body, std::string* answer);

// GET /tokenizer_info, for clients that tokenise for themselves.
std::string tokenizer_info_json(const ServedModel& model);

// GET /v1/models and /v1/models/{id}.
std::string model_list_json(const ServedModel& model, int64_t created);
std::string model_json(const ServedModel& model, int64_t created);

}  // namespace kvasir
