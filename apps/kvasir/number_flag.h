#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <limits>
#include <string_view>

namespace kvasir {

// Checks a flag against the range that the API gives the request field of this name
// (server/request_fields.h), so that both take the same numbers; `least` raises the lower end of an
// integer's. Decimal numbers only: no NaN, no octal, nothing that wraps or saturates. For
// Option::transform().
CLI::Validator field_range(std::string_view field, int64_t least = std::numeric_limits<int64_t>::min());

// The same with limits of its own; `above_least`: the least is not in the range. Of numbers also for
// Option::check().
CLI::Validator integer_range(int64_t least, int64_t most);
CLI::Validator number_range(double least, double most, bool above_least = false);

// Refuses "", which a variable that is not set leaves on a command line. For Option::check().
CLI::Validator not_empty();

}  // namespace kvasir
