#include "perf/profile_reader.h"

#include <fmt/format.h>

#include <cmath>

namespace kvasir {

double ProfileReader::number(const char* key, double least, double most) {
  const boost::json::value* v = find(key);
  if (v == nullptr) return 0;
  if (!v->is_number()) return fail(key, "is not a number"), 0;
  const double d = v->to_number<double>();
  if (!(d >= least && d <= most))
    return fail(key, fmt::format("is {}; it must lie in {} .. {}", d, least, most)), 0;
  return d;
}

uint64_t ProfileReader::count(const char* key, uint64_t least, uint64_t most) {
  const double d = number(key, static_cast<double>(least), static_cast<double>(most));
  if (d != std::floor(d)) fail(key, fmt::format("is {}; it must be a whole number", d));
  return static_cast<uint64_t>(d);
}

std::string ProfileReader::text(const char* key) {
  const boost::json::value* v = find(key);
  if (v == nullptr) return "";
  if (!v->is_string()) return fail(key, "is not a string"), "";
  return std::string(v->get_string());
}

std::vector<double> ProfileReader::numbers(const char* key, size_t count, double least, double most) {
  constexpr size_t kMost = 64;
  const boost::json::array* list = array(key);
  if (list == nullptr) return {};
  if (list->empty() || list->size() > kMost || (count != 0 && list->size() != count))
    return fail(key, fmt::format("has {} entries", list->size())), std::vector<double>{};
  std::vector<double> out;
  for (const boost::json::value& v : *list) {
    const double d = v.is_number() ? v.to_number<double>() : -1;
    if (!(d >= least && d <= most))
      return fail(key, fmt::format("holds what is no number in {} .. {}", least, most)),
             std::vector<double>{};
    out.push_back(d);
  }
  return out;
}

const boost::json::array* ProfileReader::array(const char* key) {
  const boost::json::value* v = find(key);
  if (v == nullptr) return nullptr;
  if (!v->is_array()) return fail(key, "is not an array"), nullptr;
  return &v->get_array();
}

const boost::json::object* ProfileReader::object(const char* key) {
  const boost::json::value* v = find(key);
  if (v == nullptr) return nullptr;
  if (!v->is_object()) return fail(key, "is not an object"), nullptr;
  return &v->get_object();
}

void ProfileReader::fail(std::string_view key, std::string_view what) {
  if (status_.ok()) status_ = invalid_argument(fmt::format("machine profile: '{}{}' {}", prefix_, key, what));
}

const boost::json::value* ProfileReader::find(const char* key) {
  const boost::json::value* v = object_.if_contains(key);
  if (v == nullptr) fail(key, "is missing");
  return v;
}

}  // namespace kvasir
