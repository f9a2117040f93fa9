#include "perf/derivation.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "perf/names.h"

namespace kvasir {
namespace {

using Text = std::back_insert_iterator<std::string>;

std::string with_unit(double value, const std::string& unit) {
  return unit.empty() ? number_text(value) : fmt::format("{} {}", number_text(value), unit);
}

void add_lines(const Quantity& q, size_t indent, std::string* out) {
  const Text text(*out);
  fmt::format_to(text, "{:{}}{} = {}\n", "", indent, q.title, q.formula);
  const std::string numbers = substituted(q);
  if (numbers != q.formula && !q.inputs.empty()) fmt::format_to(text, "{:{}}  = {}\n", "", indent, numbers);
  fmt::format_to(text, "{:{}}  = {}\n", "", indent, with_unit(q.value, q.unit));
  size_t symbol = 0, title = 0;
  for (const QuantityInput& input : q.inputs) {
    symbol = std::max(symbol, input.symbol.size());
    title = std::max(title, input.title.size());
  }
  for (const QuantityInput& input : q.inputs)
    fmt::format_to(text, "{:{}}  {:<{}}  {:<{}}  {}\n", "", indent, input.symbol, symbol, input.title, title,
                   with_unit(input.value, input.unit));
  if (!q.source.empty()) fmt::format_to(text, "{:{}}  source: {}\n", "", indent, q.source);
}

}  // namespace

QuantityInput given(std::string symbol, std::string title, double value, std::string unit) {
  return {std::move(symbol), std::move(title), value, std::move(unit), ""};
}

QuantityInput of(std::string symbol, std::string quantity) {
  return {std::move(symbol), "", 0, "", std::move(quantity)};
}

const Quantity& Derivation::add(Quantity quantity) {
  CHECK(find(quantity.id) == nullptr);
  for (QuantityInput& input : quantity.inputs) {
    if (input.quantity.empty()) continue;
    const Quantity* other = find(input.quantity);
    CHECK(other != nullptr);
    input.value = other->value;
    if (input.title.empty()) input.title = other->title;
    if (input.unit.empty()) input.unit = other->unit;
  }
  CHECK(evaluate(quantity.formula, quantity.inputs).ok());
  quantities_.push_back(std::move(quantity));
  return quantities_.back();
}

const Quantity* Derivation::find(std::string_view id) const {
  const auto it =
      std::find_if(quantities_.begin(), quantities_.end(), [&](const Quantity& q) { return q.id == id; });
  return it == quantities_.end() ? nullptr : &*it;
}

double Derivation::value(std::string_view id) const {
  const Quantity* quantity = find(id);
  CHECK(quantity != nullptr);
  return quantity->value;
}

Result<std::string> Derivation::explain(std::string_view id, bool recursive) const {
  const Quantity* first = find(id);
  if (first == nullptr) {
    std::vector<std::string> ids;
    for (const Quantity& q : quantities_) ids.push_back(q.id);
    return not_found(fmt::format("no quantity is called '{}'{}", id, did_you_mean(nearest_names(id, ids))));
  }
  std::string text;
  std::vector<std::pair<const Quantity*, size_t>> open = {{first, 0}};
  std::vector<const Quantity*> seen = {first};
  for (size_t i = 0; i < open.size(); ++i) {
    const auto [quantity, indent] = open[i];
    add_lines(*quantity, indent, &text);
    if (!recursive) break;
    for (const QuantityInput& input : quantity->inputs) {
      const Quantity* next = input.quantity.empty() ? nullptr : find(input.quantity);
      if (next == nullptr || std::find(seen.begin(), seen.end(), next) != seen.end()) continue;
      seen.push_back(next);
      open.push_back({next, indent + 2});
    }
  }
  return text;
}

}  // namespace kvasir
