#include "perf/json_fields.h"

#include <fmt/format.h>

#include <cmath>

namespace kvasir {

namespace json = boost::json;

const json::value* JsonFields::find(const char* key) const {
  const json::value* v = object_.if_contains(key);
  return v == nullptr || v->is_null() ? nullptr : v;
}

void JsonFields::fail(std::string_view key, std::string_view what) {
  if (status_.ok()) status_ = corrupt(fmt::format("'{}' {}", key, what));
}

std::optional<uint32_t> JsonFields::count(const char* key, uint32_t most) {
  const json::value* v = find(key);
  if (v == nullptr) return std::nullopt;
  if (!v->is_number()) return fail(key, "is not a number"), std::nullopt;
  const double d = v->to_number<double>();
  if (!(d >= 0 && d <= most) || d != std::floor(d))
    return fail(key, fmt::format("is {}; it must be a whole number of 0 to {}", d, most)), std::nullopt;
  return static_cast<uint32_t>(d);
}

uint32_t JsonFields::need_count(const char* key) {
  if (!has(key)) fail(key, "is missing");
  return count(key).value_or(0);
}

double JsonFields::number_or(const char* key, double otherwise) {
  const json::value* v = find(key);
  if (v == nullptr) return otherwise;
  if (!v->is_number()) return fail(key, "is not a number"), otherwise;
  const double d = v->to_number<double>();
  if (!(d >= 0 && std::isfinite(d))) fail(key, fmt::format("is {}; it must be 0 or more", d));
  return d;
}

bool JsonFields::flag_or(const char* key, bool otherwise) {
  const json::value* v = find(key);
  if (v == nullptr) return otherwise;
  if (!v->is_bool()) return fail(key, "is neither true nor false"), otherwise;
  return v->get_bool();
}

std::string JsonFields::text(const char* key) {
  const json::value* v = find(key);
  if (v == nullptr) return "";
  if (!v->is_string()) return fail(key, "is not a string"), "";
  return std::string(v->get_string());
}

const json::object* JsonFields::object(const char* key) {
  const json::value* v = find(key);
  if (v != nullptr && !v->is_object()) fail(key, "is not an object");
  return v == nullptr ? nullptr : v->if_object();
}

const json::array* JsonFields::array(const char* key) {
  const json::value* v = find(key);
  if (v != nullptr && !v->is_array()) fail(key, "is not an array");
  return v == nullptr ? nullptr : v->if_array();
}

Result<json::object> parse_json_object(std::string_view text) {
  json::error_code error;
  json::value root = json::parse({text.data(), text.size()}, error);
  if (error) return invalid_argument(fmt::format("not JSON: {}", error.message()));
  if (!root.is_object()) return invalid_argument("not a JSON object");
  return std::move(root.get_object());
}

}  // namespace kvasir
