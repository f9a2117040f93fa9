#include "apps/kvasir/number_flag.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include "base/check.h"
#include "server/request_fields.h"

namespace kvasir {
namespace {

// Whether the whole text is one number, which is then in *value.
template <class T>
bool read_number(const std::string& text, T* value) {
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && rest == end;
}

using Limits = std::numeric_limits<int64_t>;

CLI::Validator integer_range(int64_t least, int64_t most) {
  const std::string range = fmt::format("{} to {}", least, most);
  const bool any = least == Limits::min() && most == Limits::max();
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        int64_t value = 0;
        if (!read_number(text, &value) || value < least || value > most)
          return fmt::format("'{}' is not an integer from {}", text, range);
        text = std::to_string(value);  // CLI11 takes a leading zero for octal
        return "";
      },
      any ? "" : range);  // --help shows it
}

CLI::Validator real_range(double least, double most, bool above_least) {
  const std::string range = above_least ? fmt::format("above {} and at most {}", least, most)
                                        : fmt::format("from {} to {}", least, most);
  return CLI::Validator(
      [=](std::string& text) -> std::string {
        double value = 0;
        const bool number = read_number(text, &value);  // "nan" is one, and fails every comparison
        if (number && value <= most && (above_least ? value > least : value >= least)) return "";
        return fmt::format("'{}' is not a number {}", text, range);
      },
      range);
}

}  // namespace

CLI::Validator field_range(std::string_view field, int64_t least) {
  const auto fields = request_fields();
  const auto row = std::find_if(fields.begin(), fields.end(), [&](const RequestField& f) {
    return f.name == field && (f.endpoints & kChatField) != 0;
  });
  CHECK(row != fields.end() && (row->type == FieldType::kInteger || row->type == FieldType::kNumber));
  if (row->type == FieldType::kNumber) return real_range(row->min, row->max, row->above_min);
  const int64_t min = std::isfinite(row->min) ? static_cast<int64_t>(row->min) : Limits::min();
  const int64_t max = std::isfinite(row->max) ? static_cast<int64_t>(row->max) : Limits::max();
  return integer_range(std::max(min, least), max);
}

CLI::Validator number_range(double least, double most) {
  return real_range(least, most, false);
}

CLI::Validator not_empty() {
  return CLI::Validator([](std::string& text) -> std::string { return text.empty() ? "it is empty" : ""; },
                        "");
}

}  // namespace kvasir
