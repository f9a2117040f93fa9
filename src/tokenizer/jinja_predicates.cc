// Tests: what may follow "is".

#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_print.h"

namespace kvasir::jinja {
namespace {

using Test = bool (*)(Runtime&, const Value&, const Value& argument);

struct NamedTest {
  std::string_view name;
  bool takes_argument;
  Test test;
};

bool leaves(Runtime& rt, const Value& v, const Value& by, double rest) {
  return arithmetic(rt, Operator::kModulo, v, by).number() == rest;
}

template <Operator op>
bool compared(Runtime& rt, const Value& v, const Value& argument) {
  return compare(rt, op, v, argument);
}

template <int rest>
bool parity(Runtime& rt, const Value& v, const Value&) {
  return leaves(rt, v, Value(int64_t{2}), rest);
}

template <bool upper>
bool cased(Runtime& rt, const Value& v, const Value&) {
  const Value text = make_text(rt.budget, to_text(v, rt.budget));
  return call(rt, *find_method(text, upper ? "isupper" : "islower"), {}).truthy();
}

bool same(Runtime& rt, const Value& a, const Value& b) {
  if (a.list() || a.dict() || a.object())
    return a.list() == b.list() && a.dict() == b.dict() && a.object() == b.object();
  return a.type_name() == b.type_name() && equal(a, b, rt.budget);
}

bool is_sequence(const Value& v) {
  return v.is_undefined() || v.text() || v.dict() || (v.list() && v.list()->indexable());
}

bool known(std::string_view name, bool filters);

constexpr NamedTest kTests[] = {
    {"!=", true, compared<Operator::kNotEqual>},
    {"<", true, compared<Operator::kLess>},
    {"<=", true, compared<Operator::kLessEqual>},
    {"==", true, compared<Operator::kEqual>},
    {">", true, compared<Operator::kGreater>},
    {">=", true, compared<Operator::kGreaterEqual>},
    {"boolean", false, [](Runtime&, const Value& v, const Value&) { return v.is<bool>(); }},
    {"callable", false,
     [](Runtime&, const Value& v, const Value&) {
       return v.is_undefined() || (v.object() && v.object()->callable());
     }},
    {"defined", false, [](Runtime&, const Value& v, const Value&) { return !v.is_undefined(); }},
    {"divisibleby", true,
     [](Runtime& rt, const Value& v, const Value& by) { return leaves(rt, v, by, 0.0); }},
    {"eq", true, compared<Operator::kEqual>},
    {"equalto", true, compared<Operator::kEqual>},
    {"even", false, parity<0>},
    {"false", false, [](Runtime&, const Value& v, const Value&) { return v.is<bool>() && !v.truthy(); }},
    {"filter", false,
     [](Runtime&, const Value& v, const Value&) { return v.text() && known(v.text()->bytes(), true); }},
    {"float", false, [](Runtime&, const Value& v, const Value&) { return v.is<double>(); }},
    {"ge", true, compared<Operator::kGreaterEqual>},
    {"greaterthan", true, compared<Operator::kGreater>},
    {"gt", true, compared<Operator::kGreater>},
    {"in", true, compared<Operator::kIn>},
    {"integer", false, [](Runtime&, const Value& v, const Value&) { return v.is<int64_t>(); }},
    {"iterable", false,
     [](Runtime&, const Value& v, const Value&) {
       return v.is_undefined() || v.text() || v.list() || v.dict();
     }},
    {"le", true, compared<Operator::kLessEqual>},
    {"lessthan", true, compared<Operator::kLess>},
    {"lower", false, cased<false>},
    {"lt", true, compared<Operator::kLess>},
    {"mapping", false, [](Runtime&, const Value& v, const Value&) { return v.dict() != nullptr; }},
    {"ne", true, compared<Operator::kNotEqual>},
    {"none", false, [](Runtime&, const Value& v, const Value&) { return v.is_none(); }},
    {"number", false, [](Runtime&, const Value& v, const Value&) { return v.is_number(); }},
    {"odd", false, parity<1>},
    {"sameas", true, same},
    {"sequence", false, [](Runtime&, const Value& v, const Value&) { return is_sequence(v); }},
    {"string", false, [](Runtime&, const Value& v, const Value&) { return v.text() != nullptr; }},
    {"test", false,
     [](Runtime&, const Value& v, const Value&) { return v.text() && known(v.text()->bytes(), false); }},
    {"true", false, [](Runtime&, const Value& v, const Value&) { return v.is<bool>() && v.truthy(); }},
    {"undefined", false, [](Runtime&, const Value& v, const Value&) { return v.is_undefined(); }},
    {"upper", false, cased<true>},
};

const NamedTest* find_test(std::string_view name) {
  const auto* it =
      std::find_if(std::begin(kTests), std::end(kTests), [&](const NamedTest& t) { return t.name == name; });
  return it == std::end(kTests) ? nullptr : it;
}

bool known(std::string_view name, bool filters) {
  return filters ? find_text_filter(name) || find_sequence_filter(name) : find_test(name) != nullptr;
}

}  // namespace

bool apply_test(Runtime& runtime, std::string_view name, const Value& input, const CallArgs& args) {
  runtime.budget.step();
  const NamedTest* t = find_test(name);
  if (!t) fail(fmt::format("no test named '{}'", name));
  if (!t->takes_argument) {
    Params(args, name, {});
    return t->test(runtime, input, Value());
  }
  const Params p(args, name, {"other"});
  return t->test(runtime, input, p.required(0));
}

}  // namespace kvasir::jinja
