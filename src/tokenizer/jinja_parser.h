#pragma once

#include <string_view>

#include "tokenizer/jinja_ast.h"

namespace kvasir::jinja {

// A template's statements. The grammar is jinja2's with the `loopcontrols` extension and transformers' {%
// generation %}; without inheritance, includes and recursive loops. Throws Error with a line.
Block parse_template(std::string_view source);

}  // namespace kvasir::jinja
