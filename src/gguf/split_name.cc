#include "gguf/split_name.h"

#include <fmt/core.h>

#include <charconv>

namespace kvasir {
namespace {

constexpr std::string_view kExtension = ".gguf";
constexpr std::string_view kOf = "-of-";
constexpr size_t kDigits = 5;

// Takes five digits off the end of `text`.
std::optional<uint32_t> take_number(std::string_view& text) {
  if (text.size() < kDigits) return std::nullopt;
  const std::string_view digits = text.substr(text.size() - kDigits);
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + kDigits, value);
  if (error != std::errc() || end != digits.data() + kDigits) return std::nullopt;
  text.remove_suffix(kDigits);
  return value;
}

bool take(std::string_view& text, std::string_view suffix) {
  if (!text.ends_with(suffix)) return false;
  text.remove_suffix(suffix.size());
  return true;
}

}  // namespace

std::string SplitName::sibling(uint32_t n) const {
  return fmt::format("{}-{:05}{}{:05}{}", prefix, n, kOf, count, kExtension);
}

std::optional<SplitName> parse_split_name(std::string_view path) {
  if (!take(path, kExtension)) return std::nullopt;
  const std::optional<uint32_t> count = take_number(path);
  if (!count || !take(path, kOf)) return std::nullopt;
  const std::optional<uint32_t> number = take_number(path);
  if (!number || !take(path, "-") || *number < 1 || *number > *count) return std::nullopt;
  return SplitName{std::string(path), *number, *count};
}

}  // namespace kvasir
