#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "server/served_model.h"

namespace kvasir {

// A request for the answer to one message, or, of a model without a chat template, for what follows a text.
// kInvalidArgument says why the message cannot be asked.
Result<Request> request_for(const ServedModel& model, const std::string& message);

// Hands all requests to an engine at once and waits for their answers' tokens. `on_answer` is told, on the
// engine's thread, how many answers are there. Errors: a request is refused, or an answer ended in an error.
Result<std::vector<std::vector<TokenId>>> answers_of(Engine& engine, const std::vector<Request>& requests,
                                                     std::function<void(size_t)> on_answer = {});

}  // namespace kvasir
