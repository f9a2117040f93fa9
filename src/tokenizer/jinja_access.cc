// Attributes, subscripts, slices and calls.

#include <fmt/format.h>

#include <algorithm>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_print.h"
#include "tokenizer/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

// What Python's sandbox for immutable use hides.
bool changes_its_object(const Value& value, std::string_view name) {
  constexpr std::string_view kOfLists[] = {"append", "clear", "pop",    "reverse",
                                           "insert", "sort",  "extend", "remove"};
  constexpr std::string_view kOfDicts[] = {"clear", "pop", "popitem", "setdefault", "update"};
  const List* l = value.list();
  if (l && l->kind == List::Kind::kList)
    return std::find(std::begin(kOfLists), std::end(kOfLists), name) != std::end(kOfLists);
  return value.dict() && std::find(std::begin(kOfDicts), std::end(kOfDicts), name) != std::end(kOfDicts);
}

std::string owner(const Value& value) {
  return value.is_none() ? "None" : fmt::format("{} object", value.type_name());
}

Value no_attribute(const Value& value, std::string_view name) {
  return Value::undefined(fmt::format("'{}' has no attribute '{}'", owner(value), name));
}

std::optional<Value> find_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  if (changes_its_object(value, name))
    return Value::undefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, value.type_name()));
  if (Object* o = value.object()) return o->attribute(runtime, name);
  return find_method(value, name);
}

std::optional<Value> find_entry(Runtime& runtime, const Value& value, const Value& key) {
  if (const Dict* d = value.dict()) {
    if (key.list() && key.list()->kind != List::Kind::kTuple) return std::nullopt;
    if (key.dict()) return std::nullopt;
    const Value* found = d->find(key, runtime.budget);
    return found ? std::optional<Value>(*found) : std::nullopt;
  }
  auto index = key.integer();
  if (!index) return std::nullopt;
  if (const List* l = value.list(); l && l->indexable()) {
    const auto size = static_cast<int64_t>(l->items.size());
    const int64_t i = *index < 0 ? *index + size : *index;
    if (i >= 0 && i < size) return l->items[static_cast<size_t>(i)];
  } else if (const Text* t = value.text()) {
    runtime.budget.bytes(t->size());
    const std::string& s = t->bytes();
    const int64_t i = *index < 0 ? *index + static_cast<int64_t>(count_chars(s)) : *index;
    const size_t at = i < 0 ? s.size() : byte_offset(s, static_cast<size_t>(i));
    if (at < s.size()) return Value(t->slice(at, byte_offset(std::string_view(s).substr(at), 1)));
  }
  return std::nullopt;
}

// The indices that Python's slice(start, stop, step) picks from `size` items.
std::vector<size_t> slice_indices(Runtime& runtime, const Value& start, const Value& stop, const Value& step,
                                  int64_t size) {
  const auto part = [&](const Value& v) -> std::optional<int64_t> {
    if (v.is_none()) return std::nullopt;
    v.require_defined();
    const auto i = v.integer();
    if (!i) fail("slice indices must be integers or None");
    return std::clamp<int64_t>(*i, -(int64_t{1} << 40),
                               int64_t{1} << 40);  // beyond any size: sums cannot overflow
  };
  const int64_t by = part(step).value_or(1);
  if (by == 0) fail("slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? size : size - 1;
  const auto place = [&](std::optional<int64_t> v, int64_t otherwise) {
    return v ? std::clamp(*v < 0 ? *v + size : *v, low, high) : otherwise;
  };
  const int64_t from = place(part(start), by > 0 ? low : high), to = place(part(stop), by > 0 ? high : low);
  std::vector<size_t> out;
  runtime.budget.values(static_cast<size_t>(size));
  for (int64_t i = from; by > 0 ? i < to : i > to; i += by) out.push_back(static_cast<size_t>(i));
  return out;
}

Value slice_text(Runtime& runtime, const Text& text, const Value& start, const Value& stop,
                 const Value& step) {
  const std::string_view s = text.bytes();
  runtime.budget.bytes(s.size());
  const auto picked = slice_indices(runtime, start, stop, step, static_cast<int64_t>(count_chars(s)));
  std::vector<size_t> offsets;  // where each character starts, and the end
  for (size_t pos = 0; pos < s.size(); pos += byte_offset(s.substr(pos), 1)) offsets.push_back(pos);
  offsets.push_back(s.size());
  Text out;
  for (size_t i : picked) out.append(text, offsets[i], offsets[i + 1] - offsets[i]);
  return make_text(runtime.budget, std::move(out));
}

class Builtin : public Object {
 public:
  Builtin(Function function, Value self, std::string_view name)
      : function_(function), self_(std::move(self)), name_(name), depth_(nested_depth({self_})) {}
  std::string_view type_name() const override { return "builtin_function_or_method"; }
  size_t depth() const override { return depth_; }
  bool callable() const override { return true; }
  Value call(Runtime& runtime, const CallArgs& args) override { return function_(runtime, self_, args); }

 private:
  Function function_;
  Value self_;
  std::string_view name_;
  size_t depth_;
};

}  // namespace

Value get_attribute(Runtime& runtime, const Value& value, std::string_view name) {
  value.require_defined();
  runtime.budget.bytes(name.size());
  if (auto found = find_attribute(runtime, value, name)) return *found;
  if (const Dict* d = value.dict())
    if (const Value* entry = d->find(name)) return *entry;
  return no_attribute(value, name);
}

Value get_item(Runtime& runtime, const Value& value, const Value& key) {
  value.require_defined();
  if (auto found = find_entry(runtime, value, key)) return *found;
  const Text* name = key.text();
  if (!name)
    return Value::undefined(
        fmt::format("{} has no element {}", owner(value), to_repr(key, runtime.budget).bytes()));
  if (auto found = find_attribute(runtime, value, name->bytes())) return *found;
  return no_attribute(value, name->bytes());
}

Value get_slice(Runtime& runtime, const Value& value, const Value& start, const Value& stop,
                const Value& step) {
  value.require_defined();
  if (const Text* t = value.text()) return slice_text(runtime, *t, start, stop, step);
  const List* l = value.list();
  if (!l || !l->indexable()) fail(fmt::format("'{}' object cannot be sliced", value.type_name()));
  std::vector<Value> items;
  for (size_t i : slice_indices(runtime, start, stop, step, static_cast<int64_t>(l->items.size())))
    items.push_back(l->items[i]);
  return make_list(runtime.budget, std::move(items),
                   l->kind == List::Kind::kTuple ? l->kind : List::Kind::kList);
}

Value call(Runtime& runtime, const Value& callee, const CallArgs& args) {
  callee.require_defined();
  runtime.budget.values(args.positional.size() + args.named.size());
  if (!callee.object() || !callee.object()->callable())
    fail(fmt::format("'{}' object is not callable", callee.type_name()));
  return callee.object()->call(runtime, args);
}

Value bind(Function function, Value self, std::string_view name) {
  return Value(Value::ObjectPtr(std::make_shared<Builtin>(function, std::move(self), name)));
}

}  // namespace kvasir::jinja
