#include <fmt/format.h>

#include "perf/model_shape.h"
#include "perf/named_rows.h"

namespace kvasir {

namespace embedded {
extern const std::string_view models_json;  // data/models.json
}

namespace {

NamedRows table() {
  return {embedded::models_json, "models", "model"};
}

}  // namespace

Result<ModelShape> shape_by_name(std::string_view name) {
  const NamedRows rows = table();
  KVASIR_ASSIGN_OR_RETURN(const boost::json::object* row, rows.find(name));
  Result<ModelShape> shape =
      shape_from_config(boost::json::serialize(row->at("config")), std::string(row->at("name").as_string()));
  CHECK(shape.ok());
  shape->source = row->at("source").as_string();
  return shape;
}

std::vector<std::string> known_shape_names() {
  return table().names();
}

}  // namespace kvasir
