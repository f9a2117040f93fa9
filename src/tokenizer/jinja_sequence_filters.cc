// Filters over sequences and mappings.

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <set>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_print.h"
#include "tokenizer/jinja_strings.h"
#include "tokenizer/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

Value generator(Runtime& rt, std::vector<Value> items) {
  return make_list(rt.budget, std::move(items), List::Kind::kGenerator);
}

// What `attribute` arguments name: "a.b.0" or an index; nothing names the item itself.
class Getter {
 public:
  Getter(Runtime& rt, const Value* attribute, const Value* fallback = nullptr)
      : rt_(rt), fallback_(fallback) {
    if (!attribute || attribute->is_none()) return;
    if (attribute->integer()) {
      path_.push_back(*attribute);
    } else if (const Text* t = attribute->text()) {
      const Text dot(".");
      for (const Value& part : split(*t, &dot, -1, rt.budget)) {
        const auto& s = part.text()->bytes();
        const bool index = !s.empty() && s.size() < 10 && std::all_of(s.begin(), s.end(), ::isdigit);
        path_.push_back(index ? Value(int64_t{std::stoll(s)}) : part);
      }
    } else {
      fail(fmt::format("an attribute is named by a str or int, not a {}", attribute->type_name()));
    }
  }

  Value operator()(const Value& item) const {
    Value v = item;
    for (const Value& key : path_) {
      v = get_item(rt_, v, key);
      if (fallback_ && !fallback_->is_none() && v.is_undefined()) v = *fallback_;
    }
    return v;
  }

 private:
  Runtime& rt_;
  const Value* fallback_;
  std::vector<Value> path_;
};

Value folded(Runtime& rt, const Value& v, bool case_sensitive) {
  if (case_sensitive || !v.text()) return v;
  return make_text(rt.budget, to_lower(*v.text()));
}

void sort_by_keys(Runtime& rt, std::vector<std::pair<Value, Value>>& keyed, bool reverse) {
  rt.budget.values(keyed.size());
  std::stable_sort(keyed.begin(), keyed.end(), [&](const auto& a, const auto& b) {
    return reverse ? less(b.first, a.first, rt.budget) : less(a.first, b.first, rt.budget);
  });
}

std::vector<Value> seconds(const std::vector<std::pair<Value, Value>>& keyed) {
  std::vector<Value> out;
  for (const auto& entry : keyed) out.push_back(entry.second);
  return out;
}

Value sort(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "sort", {"reverse", "case_sensitive", "attribute"});
  const bool exact = p.flag(1, false);
  std::vector<Getter>
      getters;  // keys are lists of what these give, as lists compare undefined values as equal
  if (p[2] && p[2]->text()) {
    const Text comma(",");
    for (const Value& part : split(*p[2]->text(), &comma, -1, rt.budget)) getters.emplace_back(rt, &part);
  } else {
    getters.emplace_back(rt, p[2]);
  }
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(input, rt.budget)) {
    std::vector<Value> key;
    for (const Getter& g : getters) key.push_back(folded(rt, g(item), exact));
    keyed.emplace_back(make_list(rt.budget, std::move(key)), item);
  }
  sort_by_keys(rt, keyed, p.flag(0, false));
  return make_list(rt.budget, seconds(keyed));
}

Value dictsort(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "dictsort", {"case_sensitive", "by", "reverse"});
  const std::string by = p.text(1) ? p.text(1)->bytes() : "key";
  if (by != "key" && by != "value") fail("dictsort(): 'by' must be 'key' or 'value'");
  if (!input.dict()) fail(fmt::format("dictsort() needs a dict, not a {}", input.type_name()));
  std::vector<std::pair<Value, Value>> keyed;
  for (const auto& [key, value] : input.dict()->entries())
    keyed.emplace_back(folded(rt, by == "key" ? key : value, p.flag(0, false)),
                       make_list(rt.budget, {key, value}, List::Kind::kTuple));
  sort_by_keys(rt, keyed, p.flag(2, false));
  return make_list(rt.budget, seconds(keyed));
}

Value groupby(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "groupby", {"attribute", "default", "case_sensitive"});
  const Getter getter(rt, &p.required(0), p[1]);
  std::vector<std::pair<Value, Value>> keyed;
  for (const Value& item : iterate(input, rt.budget))
    keyed.emplace_back(folded(rt, getter(item), p.flag(2, false)), item);
  sort_by_keys(rt, keyed, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < keyed.size();) {
    std::vector<Value> members;
    const size_t first = i;
    for (; i < keyed.size() && equal(keyed[i].first, keyed[first].first, rt.budget); ++i)
      members.push_back(keyed[i].second);
    const Value name = getter(members[0]);
    groups.push_back(
        make_list(rt.budget, {name, make_list(rt.budget, std::move(members))}, List::Kind::kTuple));
  }
  return make_list(rt.budget, std::move(groups));
}

Value unique(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "unique", {"case_sensitive", "attribute"});
  const Getter getter(rt, p[1]);
  std::set<std::string> seen;
  std::vector<Value> out;
  for (const Value& item : iterate(input, rt.budget))
    if (seen.insert(canonical_key(folded(rt, getter(item), p.flag(0, false)), rt.budget)).second)
      out.push_back(item);
  return generator(rt, std::move(out));
}

template <bool largest>
Value extreme(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, largest ? "max" : "min", {"case_sensitive", "attribute"});
  const Getter getter(rt, p[1]);
  const auto items = iterate(input, rt.budget);
  if (items.empty()) return Value::undefined("No aggregated item, sequence was empty.");
  size_t best = 0;
  Value best_key = folded(rt, getter(items[0]), p.flag(0, false));
  for (size_t i = 1; i < items.size(); ++i) {
    Value key = folded(rt, getter(items[i]), p.flag(0, false));
    if (largest ? less(best_key, key, rt.budget) : less(key, best_key, rt.budget)) {
      best = i;
      best_key = std::move(key);
    }
  }
  return items[best];
}

Value sum(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "sum", {"attribute", "start"});
  const Getter getter(rt, p[0]);
  Value total = p[1] ? *p[1] : Value(int64_t{0});
  if (total.text()) fail("sum() can't sum strings");
  for (const Value& item : iterate(input, rt.budget))
    total = arithmetic(rt, Operator::kAdd, total, getter(item));
  return total;
}

Value length(Runtime& rt, const Value& input, const CallArgs& args) {
  Params(args, "length", {});
  if (const Text* t = input.text()) {
    rt.budget.bytes(t->size());
    return Value(static_cast<int64_t>(count_chars(t->bytes())));
  }
  if (const List* l = input.list(); l && l->kind != List::Kind::kGenerator)
    return Value(static_cast<int64_t>(l->items.size()));
  if (input.dict()) return Value(static_cast<int64_t>(input.dict()->entries().size()));
  if (input.is_undefined()) return Value(int64_t{0});
  fail(fmt::format("object of type '{}' has no len()", input.type_name()));
}

Value first(Runtime& rt, const Value& input, const CallArgs& args) {
  Params(args, "first", {});
  if (const List* l = input.list(); l && l->kind == List::Kind::kGenerator && l->taken < l->items.size())
    return l->items[l->taken++];
  if (const Text* t = input.text(); t && !t->empty())
    return make_text(rt.budget, t->slice(0, byte_offset(t->bytes(), 1)));
  const auto items = iterate(input, rt.budget);
  return items.empty() ? Value::undefined("No first item, sequence was empty.") : items[0];
}

Value last(Runtime& rt, const Value& input, const CallArgs& args) {
  Params(args, "last", {});
  if (input.list() && input.list()->kind == List::Kind::kGenerator)
    fail("'generator' object is not reversible");
  const auto items = iterate(input, rt.budget);
  return items.empty() ? Value::undefined("No last item, sequence was empty.") : items.back();
}

Value list_filter(Runtime& rt, const Value& input, const CallArgs& args) {
  Params(args, "list", {});
  return make_list(rt.budget, iterate(input, rt.budget));
}

Value reverse(Runtime& rt, const Value& input, const CallArgs& args) {
  Params(args, "reverse", {});
  auto items = iterate(input, rt.budget);
  std::reverse(items.begin(), items.end());
  return input.text() ? make_text(rt.budget, join(items, Text(), rt.budget))
                      : generator(rt, std::move(items));
}

Value items_filter(Runtime& rt, const Value& input, const CallArgs& args) {
  Params(args, "items", {});
  if (!input.dict() && !input.is_undefined()) fail("Can only get item pairs from a mapping.");
  std::vector<Value> out;
  if (input.dict())
    for (const auto& [key, value] : input.dict()->entries())
      out.push_back(make_list(rt.budget, {key, value}, List::Kind::kTuple));
  return generator(rt, std::move(out));
}

Value join_filter(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "join", {"d", "attribute"});
  const Getter getter(rt, p[1]);
  auto items = iterate(input, rt.budget);
  for (Value& item : items) item = getter(item);
  const Text separator = p[0] ? to_text(*p[0], rt.budget) : Text();
  return make_text(rt.budget, join(items, separator, rt.budget));
}

Value attr(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "attr", {"name"});
  input.require_defined();
  const Text name = to_text(p.required(0), rt.budget);
  if (!input.dict()) return get_attribute(rt, input, name.bytes());
  return find_method(input, name.bytes()).value_or(Value::undefined("'dict object' has no such attribute"));
}

// The arguments after the first `n`.
CallArgs rest_of(const CallArgs& args, size_t n) {
  CallArgs rest;
  rest.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(n), args.positional.end());
  rest.named = args.named;
  return rest;
}

std::string name_argument(const CallArgs& args, size_t i, std::string_view function) {
  if (i >= args.positional.size() || !args.positional[i].text())
    fail(fmt::format("{}() needs a name as argument {}", function, i + 1));
  return args.positional[i].text()->bytes();
}

Value map_filter(Runtime& rt, const Value& input, const CallArgs& args) {
  auto items = iterate(input, rt.budget);
  if (args.positional.empty()) {
    const Params p(args, "map", {"attribute", "default"});
    const Getter getter(rt, &p.required(0), p[1]);
    for (Value& item : items) item = getter(item);
  } else {
    const std::string name = name_argument(args, 0, "map");
    const CallArgs rest = rest_of(args, 1);
    for (Value& item : items) item = apply_filter(rt, name, item, rest);
  }
  return generator(rt, std::move(items));
}

template <bool keep, bool by_attribute>
Value select(Runtime& rt, const Value& input, const CallArgs& args) {
  constexpr size_t kTest = by_attribute ? 1 : 0;
  if (by_attribute && args.positional.empty()) fail("selectattr() needs an attribute");
  const Getter getter(rt, by_attribute ? &args.positional[0] : nullptr);
  const bool tested = args.positional.size() > kTest;
  const std::string test = tested ? name_argument(args, kTest, "select") : "";
  const CallArgs rest = tested ? rest_of(args, kTest + 1) : CallArgs();
  std::vector<Value> out;
  for (const Value& item : iterate(input, rt.budget)) {
    const Value v = getter(item);
    if ((tested ? apply_test(rt, test, v, rest) : v.truthy()) == keep) out.push_back(item);
  }
  return generator(rt, std::move(out));
}

Value batch(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "batch", {"linecount", "fill_with"});
  p.required(0);
  const int64_t size = p.integer(0, 1);
  if (size < 1) fail("batch(): the size must be at least 1");
  std::vector<Value> rows, row;
  const auto flush = [&] { rows.push_back(make_list(rt.budget, std::exchange(row, {}))); };
  for (const Value& item : iterate(input, rt.budget)) {
    if (static_cast<int64_t>(row.size()) == size) flush();
    row.push_back(item);
  }
  while (p[1] && !p[1]->is_none() && !row.empty() && static_cast<int64_t>(row.size()) < size) {
    rt.budget.step();
    row.push_back(*p[1]);
  }
  if (!row.empty()) flush();
  return generator(rt, std::move(rows));
}

Value slice_filter(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "slice", {"slices", "fill_with"});
  p.required(0);
  const auto items = iterate(input, rt.budget);
  const int64_t slices = p.integer(0, 1);
  if (slices < 1) fail("slice(): the number of slices must be at least 1");
  rt.budget.values(static_cast<size_t>(slices));
  const auto n = static_cast<size_t>(slices), each = items.size() / n, extra = items.size() % n;
  std::vector<Value> columns;
  size_t pos = 0;
  for (size_t i = 0; i < n; ++i) {
    const size_t count = each + (i < extra ? 1 : 0);
    std::vector<Value> column(items.begin() + static_cast<std::ptrdiff_t>(pos),
                              items.begin() + static_cast<std::ptrdiff_t>(pos + count));
    pos += count;
    if (p[1] && !p[1]->is_none() && i >= extra) column.push_back(*p[1]);
    columns.push_back(make_list(rt.budget, std::move(column)));
  }
  return generator(rt, std::move(columns));
}

constexpr NamedFunction kFilters[] = {
    {"attr", attr},
    {"batch", batch},
    {"count", length},
    {"dictsort", dictsort},
    {"first", first},
    {"groupby", groupby},
    {"items", items_filter},
    {"join", join_filter},
    {"last", last},
    {"length", length},
    {"list", list_filter},
    {"map", map_filter},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", select<false, false>},
    {"rejectattr", select<false, true>},
    {"reverse", reverse},
    {"select", select<true, false>},
    {"selectattr", select<true, true>},
    {"slice", slice_filter},
    {"sort", sort},
    {"sum", sum},
    {"unique", unique},
};

}  // namespace

Function find_sequence_filter(std::string_view name) {
  const auto* it = std::find_if(std::begin(kFilters), std::end(kFilters),
                                [&](const NamedFunction& f) { return f.name == name; });
  return it == std::end(kFilters) ? nullptr : it->function;
}

Value apply_filter(Runtime& runtime, std::string_view name, const Value& input, const CallArgs& args) {
  runtime.budget.step();
  Function f = find_text_filter(name);
  if (!f) f = find_sequence_filter(name);
  if (!f) fail(fmt::format("no filter named '{}'", name));
  return f(runtime, input, args);
}

}  // namespace kvasir::jinja
