#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/request.h"
#include "server/tool_calls.h"

namespace kvasir {

// What all parts of one answer share.
struct AnswerHead {
  bool chat = false;
  std::string id;  // "chatcmpl-..." or "cmpl-..."
  std::string model;
  int64_t created = 0;  // seconds since the epoch
  int64_t seed = 0;
};

struct Usage {
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;
  uint64_t completion_tokens = 0;
  DraftCounts drafting;  // of all answers
};

struct Timings {
  double prompt_seconds = 0;
  double completion_seconds = 0;
};

// What one event of a stream, or a whole answer, says about one choice.
struct ChoicePart {
  uint32_t index = 0;
  std::string text;
  std::vector<ToolCall> calls;
  size_t first_call = 0;      // number of the first of `calls` in the answer
  std::string logprobs;       // JSON; "" is null
  std::string finish_reason;  // "" while it goes on
  std::string stop_reason;    // JSON; "" is null
  bool first = false;         // the first event of the choice: carries the role
  std::optional<std::vector<TokenId>> token_ids;
  std::optional<std::vector<TokenId>> prompt_token_ids;
  std::string prompt_logprobs;  // JSON; "" leaves it out
};

// How usage appears in the events of a stream.
enum class UsageField : uint8_t { kAbsent, kNull, kPresent };

// One event's JSON.
std::string stream_chunk_json(const AnswerHead& head, const ChoicePart& part, UsageField usage_field,
                              const Usage& usage, const std::optional<Timings>& timings);
// The last event of a stream with include_usage: no choices.
std::string usage_chunk_json(const AnswerHead& head, const Usage& usage);
// A whole answer.
std::string answer_json(const AnswerHead& head, const std::vector<ChoicePart>& parts, const Usage& usage,
                        const std::optional<Timings>& timings);

// One server-sent event.
std::string sse_event(std::string_view json);
inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
// Empty lines between events mean nothing (WHATWG HTML, 9.2.6), and every client skips them: they end its
// events. The usual comment is no such thing to all: `sglang.bench_serving` reads it as JSON, and `vllm bench
// serve`, which strips each read of its white space, glues one that came alone to the next event.
inline constexpr std::string_view kSseKeepAlive = "\n\n";

}  // namespace kvasir
