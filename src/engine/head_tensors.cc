#include "engine/head_tensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "gguf/byte_cursor.h"

namespace kvasir {
namespace {

constexpr std::string_view kPrefixes[] = {"", "medusa_heads.", "model."};

}  // namespace

const HeadTensor* HeadTensors::find(std::string_view name) const {
  for (const std::string_view prefix : kPrefixes) {
    if (const HeadTensor* t = file_.find(std::string(prefix) + std::string(name))) return t;
  }
  return nullptr;
}

void HeadTensors::fail(const Status& status) {
  if (status_.ok()) status_ = status;
}

void HeadTensors::ignore(std::string_view name) {
  if (const HeadTensor* t = find(name)) used_.insert(t->name);
}

const HeadTensor* HeadTensors::take(std::string_view name, const std::vector<uint64_t>& shape) {
  const HeadTensor* t = find(name);
  if (t == nullptr) {
    fail(corrupt(fmt::format("tensor '{}' is missing", name)));
    return nullptr;
  }
  used_.insert(t->name);
  if (t->shape == shape) return t;
  fail(corrupt(fmt::format("tensor {} has shape ({}), and this model needs ({})", kvasir::quoted(t->label),
                           fmt::join(t->shape, ", "), fmt::join(shape, ", "))));
  return nullptr;
}

std::vector<float> HeadTensors::floats(std::string_view name, const std::vector<uint64_t>& shape) {
  const HeadTensor* t = take(name, shape);
  if (t == nullptr) return {};
  return finite(*t, t->floats(0, t->elements()));
}

std::vector<float> HeadTensors::finite(const HeadTensor& tensor, Result<std::vector<float>> values) {
  if (!values.ok()) {
    fail(values.status());
    return {};
  }
  const auto odd = std::ranges::find_if_not(*values, [](float x) { return std::isfinite(x); });
  if (odd == values->end()) return std::move(values).value();
  fail(corrupt(fmt::format("tensor {}: value {} of {} is {}, and no guess would come of that",
                           kvasir::quoted(tensor.label), odd - values->begin(), values->size(), *odd)));
  return {};
}

OwnMatrix HeadTensors::matrix(std::string_view name, uint32_t n, uint32_t k, bool f16) {
  const std::vector<float> values = floats(name, {n, k});
  if (values.empty()) return {};
  return f16 ? OwnMatrix::f16(values, n, k) : OwnMatrix::q8_0(values, n, k);
}

std::vector<float> HeadTensors::vector(std::string_view name, uint32_t n, bool optional) {
  if (optional && !has(name)) return {};
  return floats(name, {n});
}

std::vector<int64_t> HeadTensors::integers(std::string_view name) {
  const HeadTensor* t = find(name);
  if (t == nullptr) return {};
  used_.insert(t->name);
  auto values = t->integers();
  if (values.ok()) return std::move(values).value();
  fail(values.status());
  return {};
}

std::vector<float> HeadTensors::row(std::string_view name, uint32_t n, uint32_t k, uint32_t row) {
  const HeadTensor* t = take(name, {n, k});
  if (t == nullptr) return {};
  return finite(*t, t->floats(uint64_t{row} * k, k));
}

OwnMatrix HeadTensors::some_rows(std::string_view name, uint32_t n, uint32_t k,
                                 const std::vector<uint32_t>& rows) {
  const std::vector<float> all = floats(name, {n, k});
  if (all.empty()) return {};
  std::vector<float> values;
  values.reserve(rows.size() * k);
  for (const uint32_t row : rows) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(size_t{row} * k);
    values.insert(values.end(), begin, begin + k);
  }
  return OwnMatrix::q8_0(values, static_cast<uint32_t>(rows.size()), k);
}

uint32_t HeadTensors::rows_of(std::string_view name, uint32_t k) {
  const HeadTensor* t = find(name);
  if (t == nullptr) {
    fail(corrupt(fmt::format("tensor '{}' is missing", name)));
    return 0;
  }
  if (t->shape.size() == 2 && t->shape[1] == k && t->shape[0] > 0 && t->shape[0] < (1u << 24))
    return static_cast<uint32_t>(t->shape[0]);
  fail(corrupt(fmt::format("tensor {} has shape ({}), and rows of {} values are needed",
                           kvasir::quoted(t->label), fmt::join(t->shape, ", "), k)));
  return 0;
}

Status HeadTensors::status() const {
  if (!status_.ok()) return status_;
  for (const HeadTensor& t : file_.tensors()) {
    if (!used_.contains(t.name))
      return unsupported(
          fmt::format("tensor {} is not one that such a head has here: refusing to leave part of it out",
                      kvasir::quoted(t.label)));
  }
  return {};
}

std::shared_ptr<GuessHead> guess_head(HeadTensors& tensors, std::string_view name, const CausalLm& target,
                                      const std::vector<int64_t>& tokens, uint32_t frequent) {
  const ModelConfig& config = target.config();
  const bool own = tensors.has(name);
  std::vector<int64_t> of_row = tokens;
  if (of_row.empty()) {
    const uint32_t all = own || frequent == 0 ? config.vocab_size : std::min(frequent, config.vocab_size);
    of_row.resize(all);
    std::iota(of_row.begin(), of_row.end(), 0);
  }
  std::vector<uint32_t> order(of_row.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return of_row[a] < of_row[b]; });
  std::vector<TokenId> ids;
  for (const uint32_t row : order) {
    if (of_row[row] < 0 || of_row[row] >= config.vocab_size) {
      tensors.fail(
          corrupt(fmt::format("its token {} is none of the model's {}", of_row[row], config.vocab_size)));
      return nullptr;
    }
    if (!ids.empty() && ids.back() == of_row[row]) {
      tensors.fail(corrupt(fmt::format("token {} has two rows", of_row[row])));
      return nullptr;
    }
    ids.push_back(static_cast<TokenId>(of_row[row]));
  }
  // A row for each of the listed tokens, or for every token of the target's.
  const auto listed = static_cast<uint32_t>(ids.size());
  const uint32_t there = own ? tensors.rows_of(name, config.hidden_dim) : 0;
  const bool all = there == config.vocab_size && there != listed;
  if (all) order.assign(ids.begin(), ids.end());
  OwnMatrix rows = own ? tensors.some_rows(name, all ? there : listed, config.hidden_dim, order)
                       : rows_of_head(target, ids);
  if (!rows.present()) return nullptr;
  return std::make_shared<GuessHead>(std::move(ids), std::move(rows), config);
}

}  // namespace kvasir
