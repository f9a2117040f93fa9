#pragma once

#include <optional>
#include <string_view>

#include "tokenizer/jinja_ast.h"
#include "tokenizer/jinja_object.h"

namespace kvasir::jinja {

// What expressions are made of, with Python's meanings. All throw Error as Python would raise.

Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b);
Value negate(const Value& value, bool minus);  // -value or +value
bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b);

// value.name: a method, else a dict's entry, else undefined. Undefined values have no attributes: that
// throws.
Value get_attribute(Runtime& runtime, const Value& value, std::string_view name);
// value[key]: an entry, else an attribute, else undefined.
Value get_item(Runtime& runtime, const Value& value, const Value& key);
// value[start:stop:step]; None where left out.
Value get_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                const Value& step);
Value call(Runtime& runtime, const Value& callee, const CallArgs& args);

// A built-in function as a value.
using Function = Value (*)(Runtime&, const Value& self, const CallArgs&);
Value bind(Function function, Value self, std::string_view name);

// Methods of strings, lists and dicts.
std::optional<Value> find_method(const Value& self, std::string_view name);

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input, const CallArgs& args);
bool apply_test(Runtime& runtime, std::string_view name, const Value& input, const CallArgs& args);
// range, dict, namespace, cycler, joiner, raise_exception, strftime_now.
std::optional<Value> find_global(std::string_view name);

// "%s" % values.
Text percent_format(Runtime& runtime, const Text& format, const Value& values);
// "{}".format(...).
Text brace_format(Runtime& runtime, const Text& format, const CallArgs& args);

struct NamedFunction {
  std::string_view name;
  Function function;
};
// Parts of the table of filters.
Function find_text_filter(std::string_view name);
Function find_sequence_filter(std::string_view name);

}  // namespace kvasir::jinja
