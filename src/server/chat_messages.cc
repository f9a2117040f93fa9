#include "server/chat_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "server/json_input.h"

namespace kvasir {

namespace json = boost::json;

TemplateValue template_value(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return {};
    case json::kind::bool_:
      return value.get_bool();
    case json::kind::int64:
      return value.get_int64();
    case json::kind::uint64:
      return static_cast<double>(value.get_uint64());
    case json::kind::double_:
      return value.get_double();
    case json::kind::string:
      return std::string(value.get_string());
    case json::kind::array: {
      TemplateValue::Array array;
      for (const json::value& v : value.get_array()) array.push_back(template_value(v));
      return array;
    }
    case json::kind::object:
      break;
  }
  TemplateValue::Object object;
  for (const auto& member : value.get_object()) {
    object.emplace_back(std::string(member.key()), template_value(member.value()));
  }
  return object;
}

namespace {

struct Message {
  std::string role;
  std::string content;
  TemplateValue::Object rest;  // every other member
};

constexpr std::array<std::string_view, 3> kTextParts = {"text", "input_text", "output_text"};

Problem read_part(const json::value& part, const std::string& where, std::string* text) {
  if (part.is_string()) {
    *text = std::string(part.get_string());
    return std::nullopt;
  }
  const json::object* object = part.if_object();
  const json::value* type = object != nullptr ? object->if_contains("type") : nullptr;
  if (type == nullptr || !type->is_string()) {
    return bad_field(where + ".type", fmt::format("'{}.type' must be a string", where));
  }
  const std::string kind(type->get_string());
  const bool refusal = kind == "refusal";
  if (!refusal && std::find(kTextParts.begin(), kTextParts.end(), kind) == kTextParts.end()) {
    return bad_field(where + ".type",
                     fmt::format("'{}' is of type '{}': the model reads text only", where, kind));
  }
  const json::value* value = object->if_contains(refusal ? "refusal" : "text");
  if (value == nullptr || !value->is_string()) {
    const std::string param = where + (refusal ? ".refusal" : ".text");
    return bad_field(param, fmt::format("'{}' must be a string", param));
  }
  *text = std::string(value->get_string());
  return std::nullopt;
}

Problem read_content(const json::value* content, const std::string& where, std::string* text) {
  if (content == nullptr || content->is_null()) return std::nullopt;
  if (content->is_string()) {
    *text = std::string(content->get_string());
    return std::nullopt;
  }
  if (!content->is_array()) {
    return bad_field(where, fmt::format("'{}' must be a string, null, or a list of parts", where));
  }
  bool first = true;
  for (size_t i = 0; i < content->get_array().size(); ++i) {
    std::string part;
    if (Problem problem = read_part(content->get_array()[i], fmt::format("{}[{}]", where, i), &part))
      return problem;
    if (!std::exchange(first, false)) *text += '\n';
    *text += part;
  }
  return std::nullopt;
}

// An earlier answer's tool calls. Their arguments come as a string of JSON; templates write them with tojson.
Problem read_tool_calls(const json::value& calls, const std::string& where, TemplateValue* out) {
  if (!calls.is_array()) return bad_field(where, fmt::format("'{}' must be an array", where));
  TemplateValue::Array list;
  for (size_t i = 0; i < calls.get_array().size(); ++i) {
    json::value call = calls.get_array()[i];
    const std::string at = fmt::format("{}[{}]", where, i);
    json::value* function = call.is_object() ? call.get_object().if_contains("function") : nullptr;
    if (function == nullptr || !function->is_object()) {
      return bad_field(at + ".function", fmt::format("'{}.function' must be an object", at));
    }
    const json::value* name = function->get_object().if_contains("name");
    if (name == nullptr || !name->is_string()) {
      return bad_field(at + ".function.name", fmt::format("'{}.function.name' must be a string", at));
    }
    json::value* arguments = function->get_object().if_contains("arguments");
    if (arguments != nullptr && arguments->is_string()) {
      auto parsed = parse_json(arguments->get_string());
      if (parsed.ok()) *arguments = std::move(*parsed);
    }
    list.push_back(template_value(call));
  }
  *out = std::move(list);
  return std::nullopt;
}

Problem read_role(const json::object& message, const std::string& where, std::string* role) {
  constexpr std::array<std::string_view, 6> kRoles = {"system",    "developer", "user",
                                                      "assistant", "tool",      "function"};
  const json::value* value = message.if_contains("role");
  if (value == nullptr || !value->is_string()) {
    return bad_field(where + ".role", fmt::format("'{}.role' must be a string", where));
  }
  *role = std::string(value->get_string());
  if (std::find(kRoles.begin(), kRoles.end(), *role) == kRoles.end()) {
    return bad_field(where + ".role", fmt::format("'{}.role' is '{}'; it must be one of {}", where, *role,
                                                  fmt::join(kRoles, ", ")));
  }
  if (*role == "developer") *role = "system";
  if (*role == "function") *role = "tool";
  return std::nullopt;
}

Problem read_message(const json::value& value, const std::string& where, Message* message) {
  const json::object* object = value.if_object();
  if (object == nullptr) return bad_field(where, fmt::format("'{}' must be an object", where));
  if (Problem problem = read_role(*object, where, &message->role)) return problem;
  const json::value* content = object->if_contains("content");
  const json::value* calls = object->if_contains("tool_calls");
  const bool has_calls = calls != nullptr && !calls->is_null();
  if (content == nullptr && !has_calls) {
    return bad_field(where + ".content", fmt::format("'{}.content' is missing", where));
  }
  if (Problem problem = read_content(content, where + ".content", &message->content)) return problem;
  if (has_calls) {
    TemplateValue list;
    if (Problem problem = read_tool_calls(*calls, where + ".tool_calls", &list)) return problem;
    message->rest.emplace_back("tool_calls", std::move(list));
  }
  const json::value* reasoning = nullptr;
  for (const auto& member : *object) {
    const std::string key(member.key());
    if (key == "reasoning" || key == "reasoning_content") {
      if (!member.value().is_null()) reasoning = &member.value();
    } else if (key != "role" && key != "content" && key != "tool_calls" && !member.value().is_null()) {
      message->rest.emplace_back(key, template_value(member.value()));
    }
  }
  if (reasoning != nullptr) {
    message->rest.emplace_back("reasoning_content", template_value(*reasoning));
    message->rest.emplace_back("reasoning", template_value(*reasoning));
  }
  return std::nullopt;
}

TemplateValue to_template(Message message, ContentForm form) {
  TemplateValue::Object object;
  object.emplace_back("role", TemplateValue::trusted(std::move(message.role)));  // one of a fixed set
  if (form == ContentForm::kText) {
    object.emplace_back("content", std::move(message.content));
  } else {
    TemplateValue::Array parts;
    parts.push_back(TemplateValue::Object{{"type", "text"}, {"text", std::move(message.content)}});
    object.emplace_back("content", std::move(parts));
  }
  for (auto& member : message.rest) object.push_back(std::move(member));
  return object;
}

}  // namespace

Problem messages_to_template(const json::array& messages, ContentForm form, TemplateValue* out) {
  std::vector<Message> read;
  for (size_t i = 0; i < messages.size(); ++i) {
    Message message;
    if (Problem problem = read_message(messages[i], fmt::format("messages[{}]", i), &message)) return problem;
    const bool joins = message.role == "system" && read.size() == 1 && read[0].role == "system";
    if (joins)
      read[0].content += "\n\n" + message.content;
    else
      read.push_back(std::move(message));
  }
  TemplateValue::Array list;
  for (Message& message : read) list.push_back(to_template(std::move(message), form));
  *out = std::move(list);
  return std::nullopt;
}

}  // namespace kvasir
