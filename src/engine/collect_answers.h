#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace kvasir {

// An answer, of all that was told of it.
struct CollectedAnswer {
  std::vector<TokenId> tokens;
  std::vector<SampledToken> logprobs;
  std::string text;
  FinishReason finish = FinishReason::kNone;
};

// Asks an engine everything at once and waits until all of it is answered; for programs that have nothing
// else to do meanwhile. Each request has one answer (n = 1). Errors: the first request that was refused
// (those before it are waited for), or an answer that ended with an error. `on_answer` is told, on the
// engine's thread, how many answers are there.
Result<std::vector<CollectedAnswer>> collect_answers(Engine& engine, const std::vector<Request>& requests,
                                                     std::function<void(size_t)> on_answer = {});

// The engine's numbers with those of the last answer's last step, which it publishes after the answer: waits
// until nothing runs.
EngineStats stats_when_idle(const Engine& engine);

}  // namespace kvasir
