#pragma once

#include <boost/json/value.hpp>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir {

inline constexpr size_t kMaxJsonDepth = 64;
inline constexpr size_t kMaxJsonValues = 1'000'000;

// Strict RFC 8259: valid UTF-8, no lone surrogates, nesting and number of values limited before anything is
// built. Errors (kInvalidArgument) name the byte offset.
Result<boost::json::value> parse_json(std::string_view text);

}  // namespace kvasir
