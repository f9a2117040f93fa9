#include "server/json_input.h"

#include <fmt/format.h>

#include <boost/json/stream_parser.hpp>

#include "tokenizer/utf8.h"

namespace kvasir {
namespace {

// Depth and size from the brackets and commas alone, so that a hostile text is refused before it costs
// memory.
Status check_shape(std::string_view text) {
  size_t depth = 0, values = 1;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\')
        ++i;
      else if (c == '"')
        in_string = false;
      continue;
    }
    if (c == '"') in_string = true;
    if (c == ']' || c == '}') depth -= depth > 0;
    if (c == ',' || c == '[' || c == '{') ++values;
    if ((c == '[' || c == '{') && ++depth > kMaxJsonDepth) {
      return invalid_argument(
          fmt::format("the JSON is nested deeper than {} levels at byte {}", kMaxJsonDepth, i));
    }
    if (values > kMaxJsonValues) {
      return invalid_argument(fmt::format("the JSON holds more than {} values", kMaxJsonValues));
    }
  }
  return {};
}

size_t first_invalid_utf8(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const Utf8Char c = decode_utf8(text, at);
    if (!c.valid()) break;
    at += c.length;
  }
  return at;
}

}  // namespace

Result<boost::json::value> parse_json(std::string_view text) {
  if (text.find_first_not_of(" \t\r\n") == std::string_view::npos) {
    return invalid_argument("the request has no body; expected a JSON object");
  }
  if (const size_t at = first_invalid_utf8(text); at < text.size()) {
    return invalid_argument(fmt::format("the JSON is not valid UTF-8 at byte {}", at));
  }
  KVASIR_RETURN_IF_ERROR(check_shape(text));
  boost::json::parse_options options;
  options.max_depth = kMaxJsonDepth;
  boost::json::stream_parser parser({}, options);
  boost::json::error_code error;
  const size_t used = parser.write_some(text.data(), text.size(), error);
  if (error) return invalid_argument(fmt::format("invalid JSON at byte {}: {}", used, error.message()));
  parser.finish(error);
  if (error) return invalid_argument(fmt::format("invalid JSON: it ends early, at byte {}", text.size()));
  const size_t rest = text.find_first_not_of(" \t\r\n", used);
  if (rest != std::string_view::npos) {
    return invalid_argument(fmt::format("invalid JSON at byte {}: text after the end of the value", rest));
  }
  return parser.release();
}

}  // namespace kvasir
