#include "server/request_fields.h"

#include <fmt/format.h>

#include <cmath>

namespace kvasir {

namespace json = boost::json;

std::optional<int64_t> json_integer(const json::value& value) {
  if (value.is_int64()) return value.get_int64();
  constexpr double kExact = 9007199254740992.0;  // 2^53
  if (value.is_double() && std::floor(value.get_double()) == value.get_double() &&
      std::fabs(value.get_double()) <= kExact) {
    return static_cast<int64_t>(value.get_double());
  }
  return std::nullopt;
}

double json_number(const json::value& value) {
  if (value.is_int64()) return static_cast<double>(value.get_int64());
  if (value.is_uint64()) return static_cast<double>(value.get_uint64());
  return value.get_double();
}

namespace {

std::string_view type_words(FieldType type) {
  switch (type) {
    case FieldType::kBoolean:
      return "a boolean";
    case FieldType::kInteger:
      return "an integer";
    case FieldType::kNumber:
      return "a number";
    case FieldType::kString:
      return "a string";
    case FieldType::kStrings:
      return "a string or a list of strings";
    case FieldType::kIntegers:
      return "a list of token ids";
    case FieldType::kArray:
      return "an array";
    case FieldType::kObject:
      return "an object";
    case FieldType::kAny:
      break;
  }
  return "a value";
}

bool all_strings(const json::value& value) {
  if (value.is_string()) return true;
  if (!value.is_array()) return false;
  for (const json::value& v : value.get_array()) {
    if (!v.is_string()) return false;
  }
  return true;
}

bool all_integers(const json::value& value) {
  if (!value.is_array()) return false;
  for (const json::value& v : value.get_array()) {
    if (!json_integer(v)) return false;
  }
  return true;
}

bool has_type(const json::value& value, FieldType type) {
  switch (type) {
    case FieldType::kBoolean:
      return value.is_bool();
    case FieldType::kInteger:
      return json_integer(value).has_value();
    case FieldType::kNumber:
      return value.is_number() && std::isfinite(json_number(value));
    case FieldType::kString:
      return value.is_string();
    case FieldType::kStrings:
      return all_strings(value);
    case FieldType::kIntegers:
      return all_integers(value);
    case FieldType::kArray:
      return value.is_array();
    case FieldType::kObject:
      return value.is_object();
    case FieldType::kAny:
      break;
  }
  return true;
}

// What the range is about: the number itself, or how long or many it is.
double measure(const json::value& value, FieldType type) {
  switch (type) {
    case FieldType::kInteger:
      return static_cast<double>(*json_integer(value));
    case FieldType::kNumber:
      return json_number(value);
    case FieldType::kString:
      return static_cast<double>(value.get_string().size());
    case FieldType::kStrings:
      return value.is_string() ? 1.0 : static_cast<double>(value.get_array().size());
    case FieldType::kIntegers:
    case FieldType::kArray:
      return static_cast<double>(value.get_array().size());
    default:
      return 0.0;
  }
}

std::string_view measured_thing(FieldType type) {
  switch (type) {
    case FieldType::kString:
      return "its length in bytes";
    case FieldType::kStrings:
    case FieldType::kIntegers:
    case FieldType::kArray:
      return "the number of its elements";
    default:
      return "it";
  }
}

// A number without a fraction, be it as large as it may.
bool whole(const json::value& value) {
  if (value.is_double()) return std::floor(value.get_double()) == value.get_double();
  return value.is_number();
}

std::string number_words(const json::value& value) {
  if (value.is_uint64()) return fmt::to_string(value.get_uint64());
  return value.is_int64() ? fmt::to_string(value.get_int64()) : fmt::to_string(value.get_double());
}

std::string range_words(const RequestField& field) {
  const bool low = std::isfinite(field.min), high = std::isfinite(field.max);
  const std::string_view least = field.above_min ? "above" : "at least";
  if (low && high && !field.above_min) return fmt::format("from {} to {}", field.min, field.max);
  if (low && high) return fmt::format("above {} and at most {}", field.min, field.max);
  if (low) return fmt::format("{} {}", least, field.min);
  return high ? fmt::format("at most {}", field.max) : "";
}

bool in_range(const RequestField& field, double measured) {
  return measured <= field.max && (field.above_min ? measured > field.min : measured >= field.min);
}

bool neutral(const RequestField& field, const json::value& value) {
  if (value.is_bool()) return !value.get_bool();
  if (value.is_number()) return json_number(value) == (std::isfinite(field.min) ? field.min : 0.0);
  if (value.is_string()) return value.get_string().empty();
  if (value.is_array()) return value.get_array().empty();
  return value.is_object() && value.get_object().empty();
}

std::string out_of_range(const RequestField& field, std::string_view name, const json::value& value) {
  if (value.is_number())
    return fmt::format("'{}' is {}; it must be {}", name, number_words(value), range_words(field));
  return fmt::format("'{}': {} is {}; it must be {}", name, measured_thing(field.type),
                     measure(value, field.type), range_words(field));
}

std::string wrong_type(const RequestField& field, std::string_view name, const json::value& value) {
  if (field.type != FieldType::kInteger || !value.is_number() || !whole(value))
    return fmt::format("'{}' must be {}", name, type_words(field.type));
  if (!range_words(field).empty()) return out_of_range(field, name, value);
  return fmt::format("'{}' is {}; it must be an integer of 64 bits", name, number_words(value));
}

// What is wrong with a value, whether or not it counts.
Problem check_field(const RequestField& field, std::string_view name, const json::value& value) {
  if (field.effect == FieldEffect::kNoEffect) return std::nullopt;
  if (field.effect == FieldEffect::kRefused) {
    if (neutral(field, value)) return std::nullopt;
    return unsupported_field(std::string(name), fmt::format("'{}' is not supported: {}", name, field.doc));
  }
  if (!has_type(value, field.type)) return bad_field(std::string(name), wrong_type(field, name, value));
  if (!in_range(field, measure(value, field.type)))
    return bad_field(std::string(name), out_of_range(field, name, value));
  return std::nullopt;
}

// Calls f(name) for the field's name and aliases until f returns true.
template <class F>
bool any_spelling(const RequestField& field, F f) {
  if (f(field.name)) return true;
  std::string_view rest = field.aliases;
  while (!rest.empty()) {
    const size_t end = std::min(rest.find(' '), rest.size());
    if (f(rest.substr(0, end))) return true;
    rest.remove_prefix(std::min(end + 1, rest.size()));
  }
  return false;
}

Problem check_combinations(const GenerationRequest& r) {
  if (r.chat && r.messages.empty()) return bad_field("messages", "'messages' must hold at least one message");
  if (!r.chat && r.prompt.is_null()) return bad_field("prompt", "'prompt' is missing");
  if (r.max_tokens == 0 && !r.echo)
    return bad_field(std::string(r.max_tokens_name),
                     fmt::format("'{}' may be 0 only together with 'echo'", r.max_tokens_name));
  if (r.max_tokens && r.sampling.min_tokens > *r.max_tokens) {
    return bad_field("min_tokens",
                     fmt::format("'min_tokens' ({}) is larger than the maximum number of tokens ({})",
                                 r.sampling.min_tokens, *r.max_tokens));
  }
  if (r.chat && r.top_logprobs > 0 && !r.chat_logprobs) {
    return bad_field("top_logprobs", "'top_logprobs' needs 'logprobs': true");
  }
  if (r.drawn() < r.n) {
    return bad_field("best_of", fmt::format("'best_of' ({}) must not be below 'n' ({})", r.drawn(), r.n));
  }
  if (r.stream && r.drawn() > r.n) {
    return bad_field("best_of", fmt::format("'best_of' ({}) above 'n' ({}) cannot be streamed: which answers "
                                            "are the best is known when all have ended",
                                            r.drawn(), r.n));
  }
  if (r.continue_final_message && r.add_generation_prompt.value_or(false)) {
    return bad_field("continue_final_message",
                     "'continue_final_message' and 'add_generation_prompt' exclude each other");
  }
  return std::nullopt;
}

std::string effect_words(const RequestField& field) {
  switch (field.effect) {
    case FieldEffect::kNoEffect:
      return "accepted, no effect";
    case FieldEffect::kRefused:
      return "refused";
    case FieldEffect::kUsed:
      break;
  }
  return std::string(field.absent);
}

}  // namespace

Problem read_request(const json::value& body, uint8_t endpoint, GenerationRequest* request,
                     uint32_t* unknown) {
  if (!body.is_object()) return bad_field("", "the request body must be a JSON object");
  const json::object& object = body.get_object();
  request->chat = endpoint == kChatField;
  size_t known = 0;
  for (const RequestField& field : request_fields()) {
    if ((field.endpoints & endpoint) == 0) continue;
    bool read = false;
    Problem problem;
    any_spelling(field, [&](std::string_view name) {
      const json::value* value = object.if_contains(json::string_view(name.data(), name.size()));
      if (value == nullptr) return false;
      ++known;
      if (value->is_null()) return false;
      problem = check_field(field, name, *value);
      if (!problem && !std::exchange(read, true) && field.effect == FieldEffect::kUsed)
        problem = field.read(*value, name, *request);
      return problem.has_value();
    });
    if (problem) return problem;
  }
  *unknown = static_cast<uint32_t>(object.size() - known);
  return check_combinations(*request);
}

std::string api_fields_markdown() {
  std::string out =
      "| field | type and range | when absent | meaning |\n"
      "|---|---|---|---|\n";
  for (const RequestField& field : request_fields()) {
    std::string name = fmt::format("`{}`", field.name);
    any_spelling(field, [&](std::string_view spelling) {
      if (spelling != field.name) name += fmt::format(", `{}`", spelling);
      return false;
    });
    if (field.endpoints == kChatField) name += " (chat)";
    if (field.endpoints == kCompletionField) name += " (completions)";
    std::string type(type_words(field.type));
    const std::string range = field.effect == FieldEffect::kUsed ? range_words(field) : "";
    const std::string_view thing = measured_thing(field.type);
    if (!range.empty())
      type += thing == "it" ? fmt::format(", {}", range) : fmt::format(", {} {}", thing, range);
    out += fmt::format("| {} | {} | {} | {} |\n", name, type, effect_words(field), field.doc);
  }
  return out;
}

}  // namespace kvasir
