#include "tokenizer/jinja_value.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_object.h"
#include "tokenizer/utf8.h"

namespace kvasir::jinja {
namespace {

size_t checked_depth(size_t depth) {
  if (depth > kMaxValueDepth) fail(fmt::format("a value nests deeper than {}", kMaxValueDepth));
  return depth;
}

// Whether a float is a whole number that an int64 holds.
bool whole(double d) {
  return d >= -0x1p63 && d < 0x1p63 && d == std::trunc(d);
}

bool lists_equal(const List& a, const List& b, Budget& budget) {
  if (a.kind != b.kind || a.items.size() != b.items.size()) return false;
  if (a.kind == List::Kind::kGenerator) return &a == &b;
  for (size_t i = 0; i < a.items.size(); ++i)
    if (!equal(a.items[i], b.items[i], budget)) return false;
  return true;
}

bool dicts_equal(const Dict& a, const Dict& b, Budget& budget) {
  if (a.entries().size() != b.entries().size()) return false;
  for (const auto& [key, value] : a.entries()) {
    const Value* other = b.find(key, budget);
    if (!other || !equal(value, *other, budget)) return false;
  }
  return true;
}

}  // namespace

size_t nested_depth(const std::vector<Value>& values) {
  size_t depth = 0;
  for (const Value& v : values) depth = std::max(depth, v.depth());
  return checked_depth(1 + depth);
}

Value Value::undefined(std::string why) {
  Value v;
  v.data_ = Undefined{std::make_shared<const std::string>(std::move(why))};
  return v;
}

std::optional<int64_t> Value::integer() const {
  if (const auto* i = std::get_if<int64_t>(&data_)) return *i;
  if (const auto* b = std::get_if<bool>(&data_)) return *b ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const auto* d = std::get_if<double>(&data_)) return *d;
  if (const auto i = integer()) return static_cast<double>(*i);
  return std::nullopt;
}

std::string Value::why() const {
  const auto* u = std::get_if<Undefined>(&data_);
  return u && u->why ? *u->why : "the value is undefined";
}

void Value::require_defined() const {
  if (is_undefined()) fail(why());
}

bool Value::truthy() const {
  if (const Text* t = text()) return !t->empty();
  if (const List* l = list()) return l->kind == List::Kind::kGenerator || !l->items.empty();
  if (const Dict* d = dict()) return !d->entries().empty();
  if (const auto n = number()) return *n != 0.0;
  return object() != nullptr;
}

size_t Value::depth() const {
  if (const List* l = list()) return l->depth;
  if (const Dict* d = dict()) return d->depth();
  return object() ? object()->depth() : 0;
}

std::string_view Value::type_name() const {
  if (const List* l = list()) {
    constexpr std::string_view kNames[] = {"list", "tuple", "range", "dict view", "generator"};
    return kNames[static_cast<size_t>(l->kind)];
  }
  if (const Object* o = object()) return o->type_name();
  constexpr std::string_view kNames[] = {"Undefined", "NoneType", "bool", "int", "float",
                                         "str",       "",         "dict", ""};
  return kNames[data_.index()];
}

List::List(Kind k, std::vector<Value> values, std::string how)
    : kind(k), items(std::move(values)), label(std::move(how)), depth(nested_depth(items)) {}

std::optional<size_t> Dict::place(const std::string& key) const {
  const auto it = places_.find(key);
  return it == places_.end() ? std::nullopt : std::optional<size_t>(it->second);
}

const Value* Dict::find(const Value& key, Budget& budget) const {
  const auto at = place(canonical_key(key, budget));
  return at ? &entries_[*at].second : nullptr;
}

const Value* Dict::find(std::string_view key) const {
  const auto at = place("$" + std::string(key));
  return at ? &entries_[*at].second : nullptr;
}

void Dict::set(const Value& key, Value value, Budget& budget) {
  budget.step(2);
  depth_ = checked_depth(std::max(depth_, 1 + value.depth()));
  std::string canonical = canonical_key(key, budget);
  if (const auto at = place(canonical)) {
    entries_[*at].second = std::move(value);
    return;
  }
  places_.emplace(std::move(canonical), entries_.size());
  entries_.emplace_back(key, std::move(value));
}

std::string canonical_key(const Value& value, Budget& budget) {
  if (const Text* t = value.text()) {
    budget.bytes(t->size());
    return "$" + t->bytes();
  }
  budget.step();
  if (const auto i = value.integer()) return fmt::format("#{}", *i);
  if (const auto d = value.number())
    return whole(*d) ? fmt::format("#{}", static_cast<int64_t>(*d)) : fmt::format("#{}", *d);
  if (const List* l = value.list(); l && l->kind == List::Kind::kTuple) {
    std::string out = "(";
    for (const Value& item : l->items) {
      const std::string part = canonical_key(item, budget);
      budget.bytes(part.size());
      out += fmt::format("{}:{}", part.size(), part);
    }
    return out;
  }
  if (value.list() || value.dict()) fail(fmt::format("unhashable type: '{}'", value.type_name()));
  if (const Object* o = value.object()) return fmt::format("@{}", static_cast<const void*>(o));
  return value.is_none() ? "N" : "U";
}

bool equal(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  if (const Text* s = a.text(), *t = b.text(); s && t) {
    if (s->size() == t->size()) budget.bytes(s->size());
    return s->bytes() == t->bytes();
  }
  if (const auto i = a.integer(), j = b.integer(); i && j) return *i == *j;
  if (const auto x = a.number(), y = b.number(); x && y) return *x == *y;
  if (const List* s = a.list(), *t = b.list(); s && t) return lists_equal(*s, *t, budget);
  if (const Dict* s = a.dict(), *t = b.dict(); s && t) return dicts_equal(*s, *t, budget);
  if (a.object() || b.object()) return a.object() == b.object();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

bool less(const Value& a, const Value& b, Budget& budget) {
  budget.step();
  a.require_defined();
  b.require_defined();
  if (const Text* s = a.text(), *t = b.text(); s && t) {
    budget.bytes(std::min(s->size(), t->size()));
    return s->bytes() < t->bytes();  // UTF-8 keeps the order of code points
  }
  if (const auto i = a.integer(), j = b.integer(); i && j) return *i < *j;
  if (const auto x = a.number(), y = b.number(); x && y) return *x < *y;
  const List *s = a.list(), *t = b.list();
  if (!s || !t || s->kind != t->kind || s->kind > List::Kind::kTuple)
    fail(fmt::format("'<' not supported between instances of '{}' and '{}'", a.type_name(), b.type_name()));
  const size_t common = std::min(s->items.size(), t->items.size());
  for (size_t i = 0; i < common; ++i)
    if (!equal(s->items[i], t->items[i], budget)) return less(s->items[i], t->items[i], budget);
  return s->items.size() < t->items.size();
}

Value make_list(Budget& budget, std::vector<Value> items, List::Kind kind, std::string label) {
  budget.values(items.size());
  return Value(std::make_shared<const List>(kind, std::move(items), std::move(label)));
}

Value make_text(Budget& budget, Text text) {
  budget.bytes(text.size());
  return Value(std::move(text));
}

Value make_text(Budget& budget, std::string_view bytes) {
  budget.bytes(bytes.size());
  return Value(Text(std::string(bytes)));
}

std::vector<Value> iterate(const Value& value, Budget& budget) {
  std::vector<Value> out;
  if (const List* l = value.list()) {
    const bool once = l->kind == List::Kind::kGenerator;
    const size_t first = once ? l->taken : 0;
    budget.values(l->items.size() - first);
    out.assign(l->items.begin() + static_cast<std::ptrdiff_t>(first), l->items.end());
    if (once) l->taken = l->items.size();
  } else if (const Dict* d = value.dict()) {
    budget.values(d->entries().size());
    for (const auto& entry : d->entries()) out.push_back(entry.first);
  } else if (const Text* t = value.text()) {
    for (size_t pos = 0; pos < t->size();) {
      const size_t length = decode_utf8(t->bytes(), pos).length;
      budget.step();
      out.emplace_back(t->slice(pos, length));
      pos += length;
    }
  } else if (!value.is_undefined()) {
    fail(fmt::format("'{}' object is not iterable", value.type_name()));
  }
  return out;
}

std::optional<Value> Namespace::attribute(Runtime&, std::string_view name) {
  const Value* found = values_.find(name);
  return found ? std::optional<Value>(*found) : std::nullopt;
}

Params::Params(const CallArgs& args, std::string_view function, std::initializer_list<std::string_view> names)
    : function_(function), names_(names), slots_(names.size()) {
  if (args.positional.size() > names.size())
    fail(fmt::format("{}() takes at most {} arguments, {} given", function, names.size(),
                     args.positional.size()));
  for (size_t i = 0; i < args.positional.size(); ++i) slots_[i] = &args.positional[i];
  for (const auto& [name, value] : args.named) {
    const auto it = std::find(names_.begin(), names_.end(), name);
    if (it == names_.end()) fail(fmt::format("{}() has no argument '{}'", function, name));
    const Value*& slot = slots_[static_cast<size_t>(it - names_.begin())];
    if (slot) fail(fmt::format("{}() got argument '{}' twice", function, name));
    slot = &value;
  }
}

const Value& Params::required(size_t i) const {
  if (!slots_[i]) fail(fmt::format("{}() lacks its argument '{}'", function_, names_[i]));
  return *slots_[i];
}

int64_t Params::integer(size_t i, int64_t fallback) const {
  if (!slots_[i] || slots_[i]->is_none()) return fallback;
  slots_[i]->require_defined();
  const auto n = slots_[i]->integer();
  if (!n) fail(fmt::format("{}(): '{}' is a {}, not an int", function_, names_[i], slots_[i]->type_name()));
  return *n;
}

const Text* Params::text(size_t i) const {
  if (!slots_[i] || slots_[i]->is_none()) return nullptr;
  slots_[i]->require_defined();
  const Text* t = slots_[i]->text();
  if (!t) fail(fmt::format("{}(): '{}' is a {}, not a str", function_, names_[i], slots_[i]->type_name()));
  return t;
}

}  // namespace kvasir::jinja
