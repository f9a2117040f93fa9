#include "perf/named_rows.h"

#include <fmt/format.h>

#include "perf/json_fields.h"
#include "perf/names.h"

namespace kvasir {

namespace json = boost::json;

namespace {

std::string name_of(const json::object& row) {
  return std::string(row.at("name").as_string());
}

bool answers_to(const json::object& row, const std::string& plain) {
  if (plain_name(name_of(row)) == plain) return true;
  const json::value* aliases = row.if_contains("aliases");
  if (aliases == nullptr) return false;
  for (const json::value& alias : aliases->as_array())
    if (plain_name(std::string_view(alias.as_string())) == plain) return true;
  return false;
}

}  // namespace

NamedRows::NamedRows(std::string_view text, const char* list, std::string what) : what_(std::move(what)) {
  Result<json::object> root = parse_json_object(text);
  CHECK(root.ok());
  rows_ = std::move(root->at(list).as_array());
}

std::vector<std::string> NamedRows::names() const {
  std::vector<std::string> names;
  for (const json::value& row : rows_) names.push_back(name_of(row.as_object()));
  return names;
}

Result<const json::object*> NamedRows::find(std::string_view name) const {
  const std::string plain = plain_name(name);
  for (const json::value& row : rows_)
    if (answers_to(row.as_object(), plain)) return &row.as_object();
  return not_found(
      fmt::format("no {} is known as '{}'{}", what_, name, did_you_mean(nearest_names(name, names()))));
}

}  // namespace kvasir
