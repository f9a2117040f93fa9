#pragma once

#include <string>

#include "tokenizer/jinja_value.h"

namespace kvasir::jinja {

// Python's str() of a value; nothing for undefined. Strings keep their marks, inside lists and dicts too.
Text to_text(const Value& value, Budget& budget);
// Python's repr().
Text to_repr(const Value& value, Budget& budget);
// Python's repr of a float: the shortest digits that read back the same.
std::string float_repr(double d);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool pretty = false;  // one item per line, each level after `indent`
  std::string indent;
  Text item_separator{", "}, key_separator{": "};
};
// Python's json.dumps(). Throws for what JSON cannot hold (undefined, objects, ranges).
Text to_json(const Value& value, const JsonStyle& style, Budget& budget);

}  // namespace kvasir::jinja
