#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "server/http_types.h"

namespace kvasir {

// A refusal in OpenAI's form: {"error":{"message","type","param","code"}}.
struct ApiError {
  int status = 400;
  std::string type = "invalid_request_error";
  std::string message;
  std::string param;                                     // "" is null
  std::string code;                                      // "" is null
  std::vector<std::pair<std::string, int64_t>> numbers;  // further members of the error object
  int retry_after_seconds = 0;
};

// nullopt is success.
using Problem = std::optional<ApiError>;

// 400, naming the field.
ApiError bad_field(std::string param, std::string message);
// 400, for a field or value of the public APIs that is not built here. Not a 5xx: clients would retry it.
ApiError unsupported_field(std::string param, std::string message);
// 400 in the words that clients look for to shorten a conversation.
ApiError context_length_exceeded(uint64_t window, uint64_t prompt_tokens, uint64_t completion_tokens,
                                 bool chat);
ApiError api_error_of(const Status& status);

// Seconds after which to come again, of those that the engine expects to need: rounded up, from 1 to 60. The
// official clients wait a minute at most; told more, they come back at once.
int retry_after(double seconds);

std::string error_json(const ApiError& error);
HttpResponse error_response(const ApiError& error);

}  // namespace kvasir
