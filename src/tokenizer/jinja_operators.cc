// Arithmetic and comparison.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_print.h"
#include "tokenizer/jinja_strings.h"

namespace kvasir::jinja {
namespace {

std::string_view symbol(Operator op) {
  constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};
  return kSymbols[static_cast<size_t>(op)];
}

[[noreturn]] void overflow() {
  fail("an integer leaves the range of 64 bits");
}

int64_t floor_divide(int64_t a, int64_t b) {
  if (b == -1) {
    if (a == INT64_MIN) overflow();
    return -a;
  }
  const int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}

Value float_power(double base, double exponent) {
  if (base == 0.0 && exponent < 0.0) fail("0.0 cannot be raised to a negative power");
  if (base < 0.0 && exponent != std::trunc(exponent)) fail("complex numbers are not supported");
  return Value(std::pow(base, exponent));
}

Value integer_power(int64_t base, int64_t exponent) {
  if (exponent < 0) return float_power(static_cast<double>(base), static_cast<double>(exponent));
  int64_t result = 1;
  while (exponent > 0) {
    if (exponent & 1 && __builtin_mul_overflow(result, base, &result)) overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) overflow();
  }
  return Value(result);
}

Value integers(Operator op, int64_t a, int64_t b) {
  int64_t r = 0;
  bool wrapped = false;
  switch (op) {
    case Operator::kAdd:
      wrapped = __builtin_add_overflow(a, b, &r);
      break;
    case Operator::kSubtract:
      wrapped = __builtin_sub_overflow(a, b, &r);
      break;
    case Operator::kMultiply:
      wrapped = __builtin_mul_overflow(a, b, &r);
      break;
    case Operator::kFloorDivide:
      r = floor_divide(a, b);
      break;
    case Operator::kModulo:
      r = b == -1 ? 0 : a - floor_divide(a, b) * b;
      break;
    case Operator::kPower:
      return integer_power(a, b);
    default:
      return Value(static_cast<double>(a) / static_cast<double>(b));
  }
  if (wrapped) overflow();
  return Value(r);
}

Value floats(Operator op, double a, double b) {
  const auto modulo = [&] {
    const double r = std::fmod(a, b);
    return r != 0.0 && (r < 0.0) != (b < 0.0) ? r + b : r;
  };
  switch (op) {
    case Operator::kAdd:
      return Value(a + b);
    case Operator::kSubtract:
      return Value(a - b);
    case Operator::kMultiply:
      return Value(a * b);
    case Operator::kFloorDivide: {
      const double quotient = (a - modulo()) / b, below = std::floor(quotient);  // whole but for rounding
      return Value(quotient - below > 0.5 ? below + 1.0 : below);
    }
    case Operator::kModulo:
      return Value(modulo());
    case Operator::kPower:
      return float_power(a, b);
    default:
      return Value(a / b);
  }
}

Value add_lists(Runtime& runtime, const List& a, const List& b) {
  runtime.budget.values(a.items.size() + b.items.size());
  std::vector<Value> items = a.items;
  items.insert(items.end(), b.items.begin(), b.items.end());
  return make_list(runtime.budget, std::move(items), a.kind);
}

std::optional<Value> repeat_value(Runtime& runtime, const Value& value, int64_t count) {
  if (const Text* t = value.text()) return make_text(runtime.budget, repeat(*t, count, runtime.budget));
  const List* l = value.list();
  if (!l || l->kind > List::Kind::kTuple) return std::nullopt;
  std::vector<Value> items;
  for (int64_t i = 0; i < count && !l->items.empty(); ++i) {
    runtime.budget.values(l->items.size());
    items.insert(items.end(), l->items.begin(), l->items.end());
  }
  return make_list(runtime.budget, std::move(items), l->kind);
}

bool contains(Runtime& runtime, const Value& item, const Value& container) {
  if (const Text* t = container.text()) {
    const Text* needle = item.text();
    if (!needle) fail(fmt::format("'in <string>' requires string as left operand, not {}", item.type_name()));
    return find_bytes(t->bytes(), needle->bytes(), 0, runtime.budget) != std::string::npos;
  }
  if (const Dict* d = container.dict()) return d->find(item, runtime.budget) != nullptr;
  if (!container.list() && !container.is_undefined())
    fail(fmt::format("argument of type '{}' is not iterable", container.type_name()));
  const auto items = iterate(container, runtime.budget);
  return std::any_of(items.begin(), items.end(),
                     [&](const Value& v) { return equal(v, item, runtime.budget); });
}

}  // namespace

Value arithmetic(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  if (const Text* t = a.text(); t && op == Operator::kModulo)
    return make_text(runtime.budget, percent_format(runtime, *t, b));
  a.require_defined();
  b.require_defined();
  if (a.is_number() && b.is_number()) {
    const bool divides = op == Operator::kDivide || op == Operator::kFloorDivide || op == Operator::kModulo;
    if (divides && *b.number() == 0.0) fail("division by zero");
    if (const auto i = a.integer(), j = b.integer(); i && j) return integers(op, *i, *j);
    return floats(op, *a.number(), *b.number());
  }
  if (op == Operator::kAdd) {
    if (const Text* s = a.text(), *t = b.text(); s && t) {
      runtime.budget.bytes(s->size() + t->size());
      Text sum = *s;
      sum.append(*t);
      return Value(std::move(sum));
    }
    if (const List* s = a.list(), *t = b.list();
        s && t && s->kind == t->kind && s->kind <= List::Kind::kTuple)
      return add_lists(runtime, *s, *t);
  }
  if (op == Operator::kMultiply) {
    if (const auto n = b.integer())
      if (auto v = repeat_value(runtime, a, *n)) return *v;
    if (const auto n = a.integer())
      if (auto v = repeat_value(runtime, b, *n)) return *v;
  }
  fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", symbol(op), a.type_name(),
                   b.type_name()));
}

Value negate(const Value& value, bool minus) {
  value.require_defined();
  if (const auto i = value.integer()) {
    if (minus && *i == INT64_MIN) overflow();
    return Value(minus ? -*i : *i);
  }
  if (const auto d = value.number()) return Value(minus ? -*d : *d);
  fail(fmt::format("bad operand type for unary {}: '{}'", minus ? '-' : '+', value.type_name()));
}

bool compare(Runtime& runtime, Operator op, const Value& a, const Value& b) {
  Budget& budget = runtime.budget;
  // NaN is neither less nor greater, so <= is not the opposite of >.
  const auto not_after = [&](const Value& x, const Value& y) {
    return less(x, y, budget) || equal(x, y, budget);
  };
  switch (op) {
    case Operator::kEqual:
      return equal(a, b, budget);
    case Operator::kNotEqual:
      return !equal(a, b, budget);
    case Operator::kLess:
      return less(a, b, budget);
    case Operator::kLessEqual:
      return not_after(a, b);
    case Operator::kGreater:
      return less(b, a, budget);
    case Operator::kGreaterEqual:
      return not_after(b, a);
    case Operator::kIn:
      return contains(runtime, a, b);
    default:
      return !contains(runtime, a, b);
  }
}

}  // namespace kvasir::jinja
