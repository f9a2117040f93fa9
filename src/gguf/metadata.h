#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"

namespace kvasir {

// The key-value part of a GGUF file. Integers of every width are widened to int64 (u64 values above its
// maximum are refused when read), floats to double, arrays to one vector per element kind. Strings are bytes.
class GgufMetadata {
 public:
  using Value = std::variant<bool, int64_t, double, std::string, std::vector<bool>, std::vector<int64_t>,
                             std::vector<double>, std::vector<std::string>>;

  // Ordered by key, so that listings are stable and no choice of keys makes a lookup slow.
  using Entries = std::map<std::string, Value, std::less<>>;

  bool contains(std::string_view key) const { return find(key) != nullptr; }
  const Value* find(std::string_view key) const;
  const Entries& entries() const { return entries_; }

  // The value of a key that must be there. Errors name the key and what was found instead.
  Result<int64_t> require_int(std::string_view key, int64_t min, int64_t max) const;
  Result<double> require_float(std::string_view key) const;
  Result<std::string> require_string(std::string_view key) const;
  Result<const std::vector<std::string>*> require_strings(std::string_view key) const;

  // The value of an optional key; nullopt when absent, an error when present with another type or out of
  // range.
  Result<std::optional<int64_t>> get_int(std::string_view key, int64_t min, int64_t max) const;
  Result<std::optional<double>> get_float(std::string_view key) const;
  Result<std::optional<bool>> get_bool(std::string_view key) const;
  Result<std::optional<std::string>> get_string(std::string_view key) const;
  // nullptr when absent. Arrays of the wrong element kind are errors. get_floats accepts integer arrays too.
  Result<const std::vector<std::string>*> get_strings(std::string_view key) const;
  Result<const std::vector<int64_t>*> get_ints(std::string_view key) const;
  Result<std::optional<std::vector<double>>> get_floats(std::string_view key) const;
  Result<const std::vector<bool>*> get_bools(std::string_view key) const;

  // False when the key is already there (GGUF forbids duplicates). For the reader and for tests.
  bool insert(std::string key, Value value);

 private:
  Entries entries_;
};

}  // namespace kvasir
