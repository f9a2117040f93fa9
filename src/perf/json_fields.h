#pragma once

#include <boost/json.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir {

// Takes optional, checked values out of a JSON object. The first fault stays: read everything, then ask
// status(), a kCorrupt that names the field and what it is. A field that is null counts as absent.
class JsonFields {
 public:
  // `object` must outlive this.
  explicit JsonFields(const boost::json::object& object) : object_(object) {}

  bool has(const char* key) const { return find(key) != nullptr; }
  // There, and null.
  bool is_null(const char* key) const { return object_.contains(key) && !has(key); }
  // A whole number of 0 to `most`.
  std::optional<uint32_t> count(const char* key, uint32_t most = UINT32_MAX);
  uint32_t count_or(const char* key, uint32_t otherwise) { return count(key).value_or(otherwise); }
  uint32_t need_count(const char* key);
  double number_or(const char* key, double otherwise);  // at least 0
  bool flag_or(const char* key, bool otherwise);
  std::string text(const char* key);  // "" when absent
  // nullptr when absent.
  const boost::json::object* object(const char* key);
  const boost::json::array* array(const char* key);

  void fail(std::string_view key, std::string_view what);
  const Status& status() const { return status_; }

 private:
  const boost::json::value* find(const char* key) const;

  const boost::json::object& object_;
  Status status_;
};

// The object that a text holds. kInvalidArgument: it is no JSON, or another kind of value.
Result<boost::json::object> parse_json_object(std::string_view text);

}  // namespace kvasir
