#include "server/answer_json.h"

#include "server/json_writer.h"

namespace kvasir {
namespace {

void write_head(JsonWriter& json, const AnswerHead& head, const char* object) {
  json.begin_object().field("id", head.id).field("object", object).field("created", head.created);
  json.field("model", head.model).field("system_fingerprint", "kvasir");
}

// What guesses did, where some were verified.
void write_speculation(JsonWriter& json, const Usage& usage) {
  const DraftCounts& d = usage.drafting;
  json.key("speculation").begin_object();
  json.field("drafts", d.drafts).field("mean_acceptance_length", d.acceptance_length());
  json.field("tokens_per_step", static_cast<double>(usage.completion_tokens) / d.steps);
  json.key("accepted_per_position").begin_array();
  for (size_t i = 0; i < d.accepted_at.size() && d.accepted_at[i] > 0; ++i) json.value(d.accepted_at[i]);
  json.end_array().field("saved_ms", d.saved_seconds * 1e3).end_object();
}

void write_usage(JsonWriter& json, const Usage& usage) {
  json.key("usage").begin_object();
  json.field("prompt_tokens", usage.prompt_tokens).field("completion_tokens", usage.completion_tokens);
  json.field("total_tokens", usage.prompt_tokens + usage.completion_tokens);
  json.key("prompt_tokens_details").begin_object().field("cached_tokens", usage.cached_tokens).end_object();
  json.key("completion_tokens_details").begin_object().field("reasoning_tokens", 0);
  json.field("accepted_prediction_tokens", usage.drafting.accepted);
  json.field("rejected_prediction_tokens", usage.drafting.drafted - usage.drafting.accepted).end_object();
  if (usage.drafting.drafts > 0) write_speculation(json, usage);
  json.end_object();
}

void write_timings(JsonWriter& json, const Usage& usage, const Timings& timings) {
  const auto write = [&](const std::string& what, uint64_t tokens, double seconds) {
    const double count = static_cast<double>(tokens);
    json.field(what + "_n", tokens).field(what + "_ms", seconds * 1e3);
    json.field(what + "_per_token_ms", tokens > 0 ? seconds * 1e3 / count : 0.0);
    json.field(what + "_per_second", seconds > 0 ? count / seconds : 0.0);
  };
  json.key("timings").begin_object().field("cache_n", usage.cached_tokens);
  write("prompt", usage.prompt_tokens - usage.cached_tokens, timings.prompt_seconds);
  write("predicted", usage.completion_tokens, timings.completion_seconds);
  if (usage.drafting.drafted > 0)
    json.field("draft_n", usage.drafting.drafted).field("draft_n_accepted", usage.drafting.accepted);
  json.end_object();
}

void write_ids(JsonWriter& json, const char* name, const std::optional<std::vector<TokenId>>& ids) {
  if (!ids) return;
  json.key(name).begin_array();
  for (const TokenId id : *ids) json.value(id);
  json.end_array();
}

void write_raw_or_null(JsonWriter& json, const char* name, const std::string& text) {
  json.key(name);
  text.empty() ? json.null() : json.raw(text);
}

// The end of a choice object, alike in every form.
void write_ending(JsonWriter& json, const ChoicePart& part) {
  write_raw_or_null(json, "logprobs", part.logprobs);
  json.key("finish_reason");
  part.finish_reason.empty() ? json.null() : json.value(part.finish_reason);
  if (!part.finish_reason.empty()) write_raw_or_null(json, "stop_reason", part.stop_reason);
  write_ids(json, "token_ids", part.token_ids);
  if (!part.prompt_logprobs.empty()) json.raw_field("prompt_logprobs", part.prompt_logprobs);
  write_ids(json, "prompt_token_ids", part.prompt_token_ids);
}

// A call is held back until it is whole, so a stream's delta carries all of it; clients add up deltas by
// their index.
void write_tool_calls(JsonWriter& json, const ChoicePart& part, bool streamed) {
  json.key("tool_calls").begin_array();
  for (size_t i = 0; i < part.calls.size(); ++i) {
    const ToolCall& call = part.calls[i];
    json.begin_object();
    if (streamed) json.field("index", part.first_call + i);
    json.field("id", call.id).field("type", "function").key("function").begin_object();
    json.field("name", call.name).field("arguments", call.arguments).end_object().end_object();
  }
  json.end_array();
}

void write_delta(JsonWriter& json, const ChoicePart& part) {
  json.key("delta").begin_object();
  if (part.first) json.field("role", "assistant");
  if (!part.text.empty())
    json.field("content", part.text);
  else if (part.first && part.calls.empty())
    json.field("content", "");
  else if (!part.calls.empty())
    json.null_field("content");
  if (!part.calls.empty()) write_tool_calls(json, part, true);
  json.end_object();
}

void write_message(JsonWriter& json, const ChoicePart& part) {
  json.key("message").begin_object().field("role", "assistant").key("content");
  part.text.empty() && !part.calls.empty() ? json.null() : json.value(part.text);
  json.null_field("refusal");
  if (!part.calls.empty()) write_tool_calls(json, part, false);
  json.end_object();
}

}  // namespace

std::string stream_chunk_json(const AnswerHead& head, const ChoicePart& part, UsageField usage_field,
                              const Usage& usage, const std::optional<Timings>& timings) {
  JsonWriter json;
  write_head(json, head, head.chat ? "chat.completion.chunk" : "text_completion");
  if (part.first) json.field("seed", head.seed);
  json.key("choices").begin_array().begin_object().field("index", part.index);
  if (head.chat)
    write_delta(json, part);
  else
    json.field("text", part.text);
  write_ending(json, part);
  json.end_object().end_array();
  if (usage_field == UsageField::kNull) json.null_field("usage");
  if (usage_field == UsageField::kPresent) write_usage(json, usage);
  if (timings) write_timings(json, usage, *timings);
  json.end_object();
  return json.take();
}

std::string usage_chunk_json(const AnswerHead& head, const Usage& usage) {
  JsonWriter json;
  write_head(json, head, head.chat ? "chat.completion.chunk" : "text_completion");
  json.key("choices").begin_array().end_array();
  write_usage(json, usage);
  json.end_object();
  return json.take();
}

std::string answer_json(const AnswerHead& head, const std::vector<ChoicePart>& parts, const Usage& usage,
                        const std::optional<Timings>& timings) {
  JsonWriter json;
  write_head(json, head, head.chat ? "chat.completion" : "text_completion");
  json.field("seed", head.seed).key("choices").begin_array();
  for (const ChoicePart& part : parts) {
    json.begin_object().field("index", part.index);
    if (head.chat)
      write_message(json, part);
    else
      json.field("text", part.text);
    write_ending(json, part);
    json.end_object();
  }
  json.end_array();
  write_usage(json, usage);
  if (timings) write_timings(json, usage, *timings);
  json.end_object();
  return json.take();
}

std::string sse_event(std::string_view json) {
  std::string event = "data: ";
  event.append(json).append("\n\n");
  return event;
}

}  // namespace kvasir
