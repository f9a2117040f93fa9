#include "gguf/metadata.h"

#include <fmt/core.h>

#include <cmath>
#include <iterator>
#include <utility>

#include "gguf/byte_cursor.h"

namespace kvasir {
namespace {

// In the order of GgufMetadata::Value.
constexpr std::string_view kKinds[] = {"a boolean",
                                       "an integer",
                                       "a floating-point number",
                                       "a string",
                                       "an array of booleans",
                                       "an array of integers",
                                       "an array of floating-point numbers",
                                       "an array of strings"};
static_assert(std::size(kKinds) == std::variant_size_v<GgufMetadata::Value>);

Status missing(std::string_view key) {
  return corrupt(fmt::format("metadata key {} is missing", quoted(key)));
}

// The value of `key` as a T; nullptr when the key is absent.
template <class T>
Result<const T*> get(const GgufMetadata& metadata, std::string_view key) {
  const GgufMetadata::Value* value = metadata.find(key);
  if (value == nullptr) return static_cast<const T*>(nullptr);
  if (const T* typed = std::get_if<T>(value)) return typed;
  const size_t wanted = GgufMetadata::Value(std::in_place_type<T>).index();
  return corrupt(
      fmt::format("metadata key {} is {}, not {}", quoted(key), kKinds[value->index()], kKinds[wanted]));
}

}  // namespace

const GgufMetadata::Value* GgufMetadata::find(std::string_view key) const {
  const auto it = entries_.find(key);
  return it == entries_.end() ? nullptr : &it->second;
}

bool GgufMetadata::insert(std::string key, Value value) {
  return entries_.emplace(std::move(key), std::move(value)).second;
}

Result<std::optional<int64_t>> GgufMetadata::get_int(std::string_view key, int64_t min, int64_t max) const {
  KVASIR_ASSIGN_OR_RETURN(const int64_t* value, get<int64_t>(*this, key));
  if (value == nullptr) return std::optional<int64_t>();
  if (*value < min || *value > max)
    return corrupt(
        fmt::format("metadata key {} is {}, which is outside {} to {}", quoted(key), *value, min, max));
  return std::optional<int64_t>(*value);
}

Result<std::optional<double>> GgufMetadata::get_float(std::string_view key) const {
  KVASIR_ASSIGN_OR_RETURN(const double* value, get<double>(*this, key));
  if (value == nullptr) return std::optional<double>();
  if (!std::isfinite(*value))
    return corrupt(fmt::format("metadata key {} is {}, which is not finite", quoted(key), *value));
  return std::optional<double>(*value);
}

Result<std::optional<bool>> GgufMetadata::get_bool(std::string_view key) const {
  KVASIR_ASSIGN_OR_RETURN(const bool* value, get<bool>(*this, key));
  return value == nullptr ? std::optional<bool>() : std::optional<bool>(*value);
}

Result<std::optional<std::string>> GgufMetadata::get_string(std::string_view key) const {
  KVASIR_ASSIGN_OR_RETURN(const std::string* value, get<std::string>(*this, key));
  return value == nullptr ? std::optional<std::string>() : std::optional<std::string>(*value);
}

Result<const std::vector<std::string>*> GgufMetadata::get_strings(std::string_view key) const {
  return get<std::vector<std::string>>(*this, key);
}

Result<const std::vector<int64_t>*> GgufMetadata::get_ints(std::string_view key) const {
  return get<std::vector<int64_t>>(*this, key);
}

Result<const std::vector<bool>*> GgufMetadata::get_bools(std::string_view key) const {
  return get<std::vector<bool>>(*this, key);
}

Result<std::optional<std::vector<double>>> GgufMetadata::get_floats(std::string_view key) const {
  using Floats = std::optional<std::vector<double>>;
  const Value* value = find(key);
  if (value != nullptr && std::holds_alternative<std::vector<int64_t>>(*value)) {
    const auto& ints = std::get<std::vector<int64_t>>(*value);
    return Floats(std::in_place, ints.begin(), ints.end());
  }
  KVASIR_ASSIGN_OR_RETURN(const std::vector<double>* floats, get<std::vector<double>>(*this, key));
  return floats == nullptr ? Floats() : Floats(*floats);
}

Result<int64_t> GgufMetadata::require_int(std::string_view key, int64_t min, int64_t max) const {
  KVASIR_ASSIGN_OR_RETURN(const std::optional<int64_t> value, get_int(key, min, max));
  if (!value) return missing(key);
  return *value;
}

Result<double> GgufMetadata::require_float(std::string_view key) const {
  KVASIR_ASSIGN_OR_RETURN(const std::optional<double> value, get_float(key));
  if (!value) return missing(key);
  return *value;
}

Result<std::string> GgufMetadata::require_string(std::string_view key) const {
  KVASIR_ASSIGN_OR_RETURN(std::optional<std::string> value, get_string(key));
  if (!value) return missing(key);
  return *std::move(value);
}

Result<const std::vector<std::string>*> GgufMetadata::require_strings(std::string_view key) const {
  KVASIR_ASSIGN_OR_RETURN(const std::vector<std::string>* value, get_strings(key));
  if (value == nullptr) return missing(key);
  return value;
}

}  // namespace kvasir
