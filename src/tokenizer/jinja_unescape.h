#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace kvasir::jinja {

// A string literal's body with Python's escapes resolved (\n, \x41, \u00e9, \101, ...; unknown ones stay as
// they are). Nothing when an escape is cut short or names no character.
std::optional<std::string> unescape(std::string_view body);

}  // namespace kvasir::jinja
