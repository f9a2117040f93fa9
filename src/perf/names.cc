#include "perf/names.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace kvasir {
namespace {

// Edits between two texts, by rows of the usual table.
size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t changed = diagonal + (a[i] == b[j] ? 0 : 1);
      diagonal = row[j + 1];
      row[j + 1] = std::min({changed, row[j] + 1, diagonal + 1});
    }
  }
  return row.back();
}

struct Candidate {
  size_t distance = 0;
  const std::string* name = nullptr;
};

}  // namespace

std::string plain_name(std::string_view name) {
  std::string plain;
  for (const char c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) != 0)
      plain += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return plain;
}

std::vector<std::string> nearest_names(std::string_view wanted, std::span<const std::string> names,
                                       size_t most) {
  constexpr size_t kMostLetters = 128;  // no name is longer; bounds the work
  const std::string plain = plain_name(wanted.substr(0, kMostLetters));
  if (plain.empty()) return {};
  std::vector<Candidate> found;
  for (const std::string& name : names) {
    const std::string other = plain_name(name);
    const size_t distance = edit_distance(plain, other);
    const bool holds =
        other.find(plain) != std::string::npos || (!other.empty() && plain.find(other) != std::string::npos);
    if (holds) found.push_back({distance, &name});
    if (!holds && 2 * distance < std::max(plain.size(), other.size()))
      found.push_back({distance + kMostLetters, &name});
  }
  std::stable_sort(found.begin(), found.end(),
                   [](const Candidate& a, const Candidate& b) { return a.distance < b.distance; });
  std::vector<std::string> nearest;
  for (const Candidate& c : found)
    if (nearest.size() < most) nearest.push_back(*c.name);
  return nearest;
}

std::string did_you_mean(std::span<const std::string> names) {
  if (names.empty()) return "";
  std::string text = "; did you mean ";
  for (size_t i = 0; i < names.size(); ++i) {
    if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
    text += names[i];
  }
  return text + "?";
}

}  // namespace kvasir
