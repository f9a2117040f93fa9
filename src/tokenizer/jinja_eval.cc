// Expressions of the interpreter.

#include <fmt/format.h>

#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_print.h"

namespace kvasir::jinja {

using Kind = Expr::Kind;

Value Interpreter::eval(const Expr& e) {
  runtime_.budget.step();
  const Level level(*this);
  return eval_node(e);
}

Value Interpreter::eval_node(const Expr& e) {
  switch (e.kind) {
    case Kind::kConstant:
      return e.constant;
    case Kind::kName:
      return look_up(e.name);
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
      return eval_collection(e);
    case Kind::kAttribute:
      return get_attribute(runtime_, eval(*e.children[0]), e.name);
    case Kind::kItem: {
      const Value owner = eval(*e.children[0]);
      return get_item(runtime_, owner, eval(*e.children[1]));
    }
    case Kind::kSlice:
      return eval_slice(e);
    case Kind::kCall:
      return eval_call(e);
    case Kind::kFilter:
      return eval_filter(e);
    case Kind::kTest: {
      const Value input = eval(*e.children[0]);
      return Value(apply_test(runtime_, e.name, input, eval_arguments(e, 1)));
    }
    case Kind::kNot:
      return Value(!eval(*e.children[0]).truthy());
    case Kind::kNegate:
    case Kind::kPlus:
      return negate(eval(*e.children[0]), e.kind == Kind::kNegate);
    case Kind::kAnd:
    case Kind::kOr:
      return eval_logic(e);
    case Kind::kArithmetic:
      return eval_arithmetic(e);
    case Kind::kCompare:
      return eval_compare(e);
    case Kind::kConcatenate:
      return eval_concatenate(e);
    case Kind::kConditional:
      return eval_conditional(e);
  }
  return Value();
}

Value Interpreter::eval_collection(const Expr& e) {
  if (e.kind == Kind::kDict) {
    auto d = std::make_shared<Dict>();
    for (size_t i = 0; i + 1 < e.children.size(); i += 2) {
      const Value key = eval(*e.children[i]);
      d->set(key, eval(*e.children[i + 1]), runtime_.budget);
    }
    return Value(Value::DictPtr(std::move(d)));
  }
  std::vector<Value> items;
  for (const auto& child : e.children) items.push_back(eval(*child));
  return make_list(runtime_.budget, std::move(items),
                   e.kind == Kind::kList ? List::Kind::kList : List::Kind::kTuple);
}

Value Interpreter::eval_slice(const Expr& e) {
  const Value owner = eval(*e.children[0]);
  const auto part = [&](size_t i) { return e.children[i] ? eval(*e.children[i]) : Value::none(); };
  const Value start = part(1), stop = part(2), step = part(3);
  return get_slice(runtime_, owner, start, stop, step);
}

CallArgs Interpreter::eval_arguments(const Expr& e, size_t first) {
  CallArgs args;
  for (size_t i = first; i < e.children.size(); ++i) args.positional.push_back(eval(*e.children[i]));
  for (const auto& [name, value] : e.named) args.named.emplace_back(name, eval(*value));
  if (e.star)
    for (Value& v : iterate(eval(*e.star), runtime_.budget)) args.positional.push_back(std::move(v));
  if (e.star_star) {
    const Value more = eval(*e.star_star);
    if (!more.dict()) fail(fmt::format("argument after ** must be a mapping, not {}", more.type_name()));
    runtime_.budget.values(more.dict()->entries().size());
    for (const auto& [key, value] : more.dict()->entries()) {
      if (!key.text()) fail("keywords must be strings");
      args.named.emplace_back(key.text()->bytes(), value);
    }
  }
  return args;
}

Value Interpreter::eval_call(const Expr& e) {
  const Value callee = eval(*e.children[0]);
  return call(runtime_, callee, eval_arguments(e, 1));
}

Value Interpreter::eval_filter(const Expr& e, const Value* input) {
  // In a filter block's chain the innermost filter has no value of its own.
  const Expr* inner = e.children[0].get();
  const Value value = !inner ? *input : input ? eval_filter(*inner, input) : eval(*inner);
  return apply_filter(runtime_, e.name, value, eval_arguments(e, 1));
}

Value Interpreter::eval_logic(const Expr& e) {
  const bool stop_at = e.kind == Kind::kOr;
  Value v;
  for (const auto& child : e.children) {
    v = eval(*child);
    if (v.truthy() == stop_at) break;
  }
  return v;
}

Value Interpreter::eval_arithmetic(const Expr& e) {
  Value v = eval(*e.children[0]);
  for (size_t i = 0; i < e.operators.size(); ++i)
    v = arithmetic(runtime_, e.operators[i], v, eval(*e.children[i + 1]));
  return v;
}

Value Interpreter::eval_compare(const Expr& e) {
  Value left = eval(*e.children[0]);
  for (size_t i = 0; i < e.operators.size(); ++i) {
    Value right = eval(*e.children[i + 1]);
    if (!compare(runtime_, e.operators[i], left, right)) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::eval_concatenate(const Expr& e) {
  Text out;
  for (const auto& child : e.children) out.append(to_text(eval(*child), runtime_.budget));
  return make_text(runtime_.budget, std::move(out));
}

Value Interpreter::eval_conditional(const Expr& e) {
  if (eval(*e.children[0]).truthy()) return eval(*e.children[1]);
  if (e.children[2]) return eval(*e.children[2]);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
}

}  // namespace kvasir::jinja
