#include "server/api_error.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "server/json_writer.h"

namespace kvasir {

ApiError bad_field(std::string param, std::string message) {
  ApiError error;
  error.param = std::move(param);
  error.message = std::move(message);
  return error;
}

ApiError unsupported_field(std::string param, std::string message) {
  ApiError error = bad_field(std::move(param), std::move(message));
  error.code = "unsupported_parameter";
  return error;
}

ApiError context_length_exceeded(uint64_t window, uint64_t prompt_tokens, uint64_t completion_tokens,
                                 bool chat) {
  ApiError error;
  error.message = fmt::format(
      "This model's maximum context length is {} tokens. However, you requested {} tokens ({} in the {}, {} "
      "in the "
      "completion). Please reduce the length of the {} or of the completion.",
      window, prompt_tokens + completion_tokens, prompt_tokens, chat ? "messages" : "prompt",
      completion_tokens, chat ? "messages" : "prompt");
  error.param = chat ? "messages" : "prompt";
  error.code = "context_length_exceeded";
  error.numbers = {{"n_prompt_tokens", static_cast<int64_t>(prompt_tokens)},
                   {"n_ctx", static_cast<int64_t>(window)}};
  return error;
}

ApiError api_error_of(const Status& status) {
  ApiError error;
  error.message = status.message();
  error.param = status.field();
  switch (status.code()) {
    case ErrorCode::kInvalidArgument:
      break;
    case ErrorCode::kUnsupported:
      error.code = "unsupported_parameter";
      break;
    case ErrorCode::kNotFound:
      error.status = 404;
      error.type = "not_found_error";
      break;
    case ErrorCode::kResourceExhausted:
      error.status = 429;
      error.type = "rate_limit_error";
      error.code = "server_overloaded";
      error.retry_after_seconds = 1;
      break;
    case ErrorCode::kUnavailable:
      error.status = 503;
      error.type = "unavailable_error";
      error.retry_after_seconds = 5;
      break;
    default:
      error.status = 500;
      error.type = "server_error";
      break;
  }
  return error;
}

int retry_after(double seconds) {
  return static_cast<int>(std::ceil(std::clamp(seconds, 1.0, 60.0)));
}

std::string error_json(const ApiError& error) {
  JsonWriter json;
  json.begin_object().key("error").begin_object();
  json.field("message", error.message).field("type", error.type);
  json.key("param");
  error.param.empty() ? json.null() : json.value(error.param);
  json.key("code");
  if (!error.code.empty())
    json.value(error.code);
  else if (error.status == 503)
    json.value(error.status);
  else
    json.null();
  for (const auto& [name, number] : error.numbers) json.field(name, number);
  json.end_object().end_object();
  return json.take();
}

HttpResponse error_response(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  response.body = error_json(error);
  if (error.retry_after_seconds > 0) {
    response.headers.push_back({"Retry-After", std::to_string(error.retry_after_seconds)});
  }
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  if (error.status == 500) response.headers.push_back({"x-should-retry", "false"});
  return response;
}

}  // namespace kvasir
