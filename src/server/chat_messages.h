#pragma once

#include <boost/json/array.hpp>
#include <boost/json/value.hpp>

#include "server/api_error.h"
#include "tokenizer/template_value.h"

namespace kvasir {

// How a template reads a message's content.
enum class ContentForm : uint8_t {
  kText,   // one string
  kParts,  // a list of {"type": "text", "text": ...}
};

TemplateValue template_value(const boost::json::value& value);

// Checks OpenAI chat messages and turns them into what templates expect: text parts joined by line feeds,
// null content as "", developer as system, several leading system messages as one, the arguments of earlier
// tool calls as objects. Problems name the message and field.
Problem messages_to_template(const boost::json::array& messages, ContentForm form, TemplateValue* out);

}  // namespace kvasir
