#include "apps/kvasir/human_size.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

namespace kvasir {

Result<uint64_t> parse_size(std::string_view text) {
  const Status error =
      invalid_argument(fmt::format("'{}' is no size; write 512M, 1.5G or a number of bytes", text));
  double number = 0;
  const auto [end, ec] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (ec != std::errc() || !(number > 0)) return error;
  std::string_view unit = text.substr(static_cast<size_t>(end - text.data()));
  while (!unit.empty() && unit.front() == ' ') unit.remove_prefix(1);
  if (!unit.empty() && (unit.back() == 'B' || unit.back() == 'b')) unit.remove_suffix(1);
  if (unit.size() == 2 && unit.back() == 'i') unit.remove_suffix(1);
  if (unit.size() > 1) return error;
  double factor = 1;
  if (!unit.empty()) {
    constexpr std::string_view kUnits = "kmgt";
    const size_t power = kUnits.find(static_cast<char>(unit.front() | 0x20));
    if (power == std::string_view::npos) return error;
    factor = std::pow(1024.0, static_cast<double>(power + 1));
  }
  const double bytes = number * factor;
  constexpr double kMost = 1125899906842624.0;  // 1 PiB
  if (bytes < 1 || bytes > kMost) return error;
  return static_cast<uint64_t>(bytes);
}

namespace {

std::string scaled(uint64_t value, double step, const char* const* units) {
  double number = static_cast<double>(value);
  size_t unit = 0;
  while (number >= step && unit < 4) {
    number /= step;
    ++unit;
  }
  return unit == 0 ? fmt::format("{}{}", value, units[0])
                   : fmt::format("{:.{}f}{}", number, number < 10 ? 2 : 1, units[unit]);
}

}  // namespace

std::string size_text(uint64_t bytes) {
  constexpr const char* kUnits[] = {" bytes", " KiB", " MiB", " GiB", " TiB"};
  return scaled(bytes, 1024.0, kUnits);
}

std::string count_text(uint64_t count) {
  constexpr const char* kUnits[] = {"", " K", " M", " B", " T"};
  return scaled(count, 1000.0, kUnits);
}

}  // namespace kvasir
