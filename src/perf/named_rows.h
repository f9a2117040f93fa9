#pragma once

#include <boost/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir {

// Rows of a table that is built into the program, {"<list>": [{"name": ..., "aliases": [...], ...}, ...]},
// looked up by name. The text is the program's own: that it is well-formed is a CHECK, which the tests of the
// tables run.
class NamedRows {
 public:
  // `what` names the rows in errors: "model".
  NamedRows(std::string_view text, const char* list, std::string what);

  const boost::json::array& rows() const { return rows_; }
  // In the order of the table, without the aliases.
  std::vector<std::string> names() const;
  // The row whose name or alias it is, case and punctuation aside. kNotFound suggests the nearest names.
  Result<const boost::json::object*> find(std::string_view name) const;

 private:
  boost::json::array rows_;
  std::string what_;
};

}  // namespace kvasir
