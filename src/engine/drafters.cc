#include "engine/drafters.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <utility>

#include "decoding/ngram_drafter.h"

namespace kvasir {
namespace {

using Made = Result<std::unique_ptr<Drafter>>;

struct Row {
  DrafterKind kind;
  Made (*make)(const DrafterSpec& spec, const EngineConfig& config);
};

Made make_ngram(const DrafterSpec&, const EngineConfig& config) {
  return Made(std::make_unique<NgramDrafter>(config.max_num_seqs));
}

constexpr Row kDrafters[] = {
    {{"ngram", "", "what followed the last tokens earlier in the same text", true}, make_ngram},
};

const Row* find(std::string_view name) {
  const auto it = std::find_if(std::begin(kDrafters), std::end(kDrafters),
                               [&](const Row& row) { return row.kind.name == name; });
  return it == std::end(kDrafters) ? nullptr : it;
}

std::vector<std::string_view> split(std::string_view text) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t comma = text.find(',');
    parts.push_back(text.substr(0, comma));
    if (comma == std::string_view::npos) return parts;
    text.remove_prefix(comma + 1);
  }
}

std::string known_kinds() {
  std::string text = "off, auto";
  for (const Row& row : kDrafters)
    text += fmt::format(", {}{}{}", row.kind.name, row.kind.argument.empty() ? "" : "=", row.kind.argument);
  return text;
}

Result<DrafterSpec> parse_one(std::string_view part) {
  const size_t equals = part.find('=');
  const std::string_view name = part.substr(0, equals);
  const Row* row = find(name);
  if (row == nullptr)
    return invalid_argument(fmt::format("'{}' is no drafter; there are {}", part, known_kinds()));
  const bool given = equals != std::string_view::npos && equals + 1 < part.size();
  if (given == row->kind.argument.empty())
    return invalid_argument(fmt::format(
        "the drafter '{}' {}", name,
        given ? "takes no value" : fmt::format("needs a value: {}={}", name, row->kind.argument)));
  return DrafterSpec{std::string(name), given ? std::string(part.substr(equals + 1)) : ""};
}

}  // namespace

std::vector<DrafterKind> drafter_kinds() {
  std::vector<DrafterKind> kinds;
  for (const Row& row : kDrafters) kinds.push_back(row.kind);
  return kinds;
}

Result<std::vector<DrafterSpec>> parse_drafters(std::string_view text) {
  std::vector<DrafterSpec> specs;
  if (text == "off") return specs;
  const auto add = [&specs](DrafterSpec spec) {
    const bool there =
        std::any_of(specs.begin(), specs.end(), [&](const DrafterSpec& s) { return s.name == spec.name; });
    if (!there) specs.push_back(std::move(spec));
  };
  for (const std::string_view part : split(text)) {
    if (part != "auto") {
      KVASIR_ASSIGN_OR_RETURN(DrafterSpec spec, parse_one(part));
      add(std::move(spec));
      continue;
    }
    for (const Row& row : kDrafters) {
      if (row.kind.automatic) add({std::string(row.kind.name), ""});
    }
  }
  return specs;
}

Result<std::vector<std::unique_ptr<Drafter>>> make_drafters(const EngineConfig& config) {
  std::vector<std::unique_ptr<Drafter>> drafters;
  for (const DrafterSpec& spec : config.speculation.drafters) {
    const Row* row = find(spec.name);
    if (row == nullptr) return invalid_argument(fmt::format("'{}' is no drafter", spec.name));
    KVASIR_ASSIGN_OR_RETURN(std::unique_ptr<Drafter> drafter, row->make(spec, config));
    drafters.push_back(std::move(drafter));
  }
  return drafters;
}

Result<uint32_t> drafter_mask(const std::vector<std::string>& names, std::string_view wish) {
  if (wish == "auto") return ~0u;
  if (wish == "off") return 0u;
  uint32_t mask = 0;
  for (const std::string_view part : split(wish)) {
    const auto it = std::find(names.begin(), names.end(), part);
    if (it == names.end())
      return invalid_argument(fmt::format("'{}' is no drafter of this server; there are auto, off{}{}", part,
                                          names.empty() ? "" : ", ", fmt::join(names, ", ")));
    mask |= 1u << (it - names.begin());
  }
  return mask;
}

}  // namespace kvasir
