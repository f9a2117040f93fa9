#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir::jinja {

struct Token {
  enum class Kind : uint8_t {
    kData,           // text between tags; `text` is it
    kVariableBegin,  // {{
    kVariableEnd,
    kBlockBegin,  // {%
    kBlockEnd,
    kName,
    kString,    // `text` is the value, escapes resolved
    kInteger,   // `integer`
    kFloat,     // `number`
    kOperator,  // `text` is it
    kEnd,
  };
  Kind kind = Kind::kEnd;
  std::string text;
  int64_t integer = 0;
  double number = 0.0;
  int line = 1;

  bool is_operator(std::string_view op) const { return kind == Kind::kOperator && text == op; }
  bool is_name(std::string_view name) const { return kind == Kind::kName && text == name; }
};

// A template as tokens, as jinja2's lexer cuts it with trim_blocks and lstrip_blocks set and
// keep_trailing_newline not: white-space control, comments and raw blocks are dealt with here. The last token
// is kEnd. Throws Error with a line.
std::vector<Token> tokenize_template(std::string_view source);

}  // namespace kvasir::jinja
