// Methods of strings, lists and dicts.

#include <fmt/format.h>

#include <algorithm>
#include <span>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_strings.h"
#include "tokenizer/jinja_unicode.h"
#include "tokenizer/utf8.h"

namespace kvasir::jinja {
namespace {

constexpr size_t kNone = std::string::npos;

template <Text (*map)(const Text&)>
Value mapped(Runtime& rt, const Value& self, const CallArgs& args) {
  Params(args, "method", {});
  rt.budget.bytes(self.text()->size());
  return make_text(rt.budget, map(*self.text()));
}

template <Side sides>
Value stripped(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, "strip", {"chars"});
  return make_text(rt.budget, strip(*self.text(), p.text(0), sides, rt.budget));
}

const Text& needed(const Params& p, size_t i) {
  p.required(i);
  const Text* t = p.text(i);
  if (!t) fail("a str is needed, not NoneType");
  return *t;
}

// The characters [start, end) that the arguments after the first select, as Python clips them.
struct Window {
  size_t begin = 0, end = 0;  // bytes
  size_t first_char = 0;
  bool valid = true;  // false when start lies beyond the text
};

Window window(const Text& text, const Params& p) {
  Window w;
  w.end = text.size();
  if (!p[1] && !p[2]) return w;
  const std::string_view s = text.bytes();
  const auto size = static_cast<int64_t>(count_chars(s));
  const auto clip = [&](int64_t i) { return i < 0 ? std::max<int64_t>(0, i + size) : i; };
  const int64_t start = clip(std::clamp<int64_t>(p.integer(1, 0), -size, size + 1));
  const int64_t end = std::min(size, clip(std::clamp<int64_t>(p.integer(2, size), -size, size)));
  w.valid = start <= size && start <= end;
  if (w.valid) {
    w.first_char = static_cast<size_t>(start);
    w.begin = byte_offset(s, w.first_char);
    w.end = byte_offset(s, static_cast<size_t>(end));
  }
  return w;
}

template <bool at_end>
Value has_affix(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, at_end ? "endswith" : "startswith", {"affix", "start", "end"});
  const Text& text = *self.text();
  const Window w = window(text, p);
  const std::string_view s = std::string_view(text.bytes()).substr(w.begin, w.end - w.begin);
  const auto matches = [&](const Value& v) {
    v.require_defined();
    if (!v.text()) fail(fmt::format("an affix must be str or a tuple of str, not {}", v.type_name()));
    rt.budget.bytes(v.text()->size());
    return w.valid && (at_end ? s.ends_with(v.text()->bytes()) : s.starts_with(v.text()->bytes()));
  };
  const Value& affix = p.required(0);
  if (const List* l = affix.list(); l && l->kind == List::Kind::kTuple)
    return Value(std::any_of(l->items.begin(), l->items.end(), matches));
  return Value(matches(affix));
}

// find, rfind, index, rindex.
template <bool from_right, bool must>
Value located(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, "find", {"sub", "start", "end"});
  const Text& text = *self.text();
  rt.budget.bytes(text.size());
  const std::string& needle = needed(p, 0).bytes();
  const Window w = window(text, p);
  const std::string_view s = std::string_view(text.bytes()).substr(w.begin, w.end - w.begin);
  size_t at = kNone;
  if (w.valid) at = from_right ? rfind_bytes(s, needle, rt.budget) : find_bytes(s, needle, 0, rt.budget);
  if (at == kNone) {
    if (must) fail("substring not found");
    return Value(int64_t{-1});
  }
  return Value(static_cast<int64_t>(w.first_char + count_chars(s.substr(0, at))));
}

Value counted(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, "count", {"sub", "start", "end"});
  const Window w = window(*self.text(), p);
  rt.budget.bytes(self.text()->size());
  const std::string_view s = std::string_view(self.text()->bytes()).substr(w.begin, w.end - w.begin);
  return Value(w.valid ? static_cast<int64_t>(count_occurrences(s, needed(p, 0).bytes(), rt.budget))
                       : int64_t{0});
}

template <bool from_right>
Value split_method(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, "split", {"sep", "maxsplit"});
  const int64_t limit = p.integer(1, -1);
  auto parts = from_right ? rsplit(*self.text(), p.text(0), limit, rt.budget)
                          : split(*self.text(), p.text(0), limit, rt.budget);
  return make_list(rt.budget, std::move(parts));
}

Value splitlines(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, "splitlines", {"keepends"});
  return make_list(rt.budget, split_lines(*self.text(), p.flag(0, false), rt.budget));
}

template <bool from_right>
Value partition(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, "partition", {"sep"});
  const Text &text = *self.text(), &sep = needed(p, 0);
  if (sep.empty()) fail("empty separator");
  const size_t at = from_right ? rfind_bytes(text.bytes(), sep.bytes(), rt.budget)
                               : find_bytes(text.bytes(), sep.bytes(), 0, rt.budget);
  const Value empty{Text()};
  std::vector<Value> parts{self, empty, empty};
  if (at == kNone && from_right) parts = {empty, empty, self};
  if (at != kNone)
    parts = {make_text(rt.budget, text.slice(0, at)), Value(sep),
             make_text(rt.budget, text.slice(at + sep.size()))};
  return make_list(rt.budget, std::move(parts), List::Kind::kTuple);
}

Value replaced(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, "replace", {"old", "new", "count"});
  return make_text(rt.budget, replace(*self.text(), needed(p, 0), needed(p, 1), p.integer(2, -1), rt.budget));
}

Value joined(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, "join", {"iterable"});
  const auto items = iterate(p.required(0), rt.budget);
  for (const Value& v : items)
    if (!v.text()) fail(fmt::format("sequence item: expected str instance, {} found", v.type_name()));
  return make_text(rt.budget, join(items, *self.text(), rt.budget));
}

template <bool at_end>
Value without_affix(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, at_end ? "removesuffix" : "removeprefix", {"affix"});
  const Text& text = *self.text();
  const std::string& affix = needed(p, 0).bytes();
  rt.budget.bytes(affix.size());
  if (at_end ? !text.bytes().ends_with(affix) : !text.bytes().starts_with(affix)) return self;
  return make_text(rt.budget, at_end ? text.slice(0, text.size() - affix.size()) : text.slice(affix.size()));
}

template <Align align>
Value padded(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, "ljust", {"width", "fillchar"});
  p.required(0);
  const Text* fill = p.text(1);
  if (fill && count_chars(fill->bytes()) != 1) fail("the fill character must be exactly one character long");
  return make_text(rt.budget,
                   pad(*self.text(), p.integer(0, 0), align, fill ? fill->bytes() : " ", rt.budget));
}

Value zfill(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, "zfill", {"width"});
  p.required(0);
  const Text& text = *self.text();
  const bool sign = text.bytes().starts_with('-') || text.bytes().starts_with('+');
  Text out = text.slice(0, sign ? 1 : 0);
  out.append(pad(text.slice(sign ? 1 : 0), p.integer(0, 0) - (sign ? 1 : 0), Align::kRight, "0", rt.budget));
  return make_text(rt.budget, std::move(out));
}

Value formatted(Runtime& rt, const Value& self, const CallArgs& args) {
  return make_text(rt.budget, brace_format(rt, *self.text(), args));
}

// Not empty, and every character is of the class.
template <bool (*in_class)(char32_t)>
Value all_are(Runtime& rt, const Value& self, const CallArgs& args) {
  Params(args, "method", {});
  const std::string& s = self.text()->bytes();
  rt.budget.bytes(s.size());
  for (size_t pos = 0; pos < s.size();) {
    const Utf8Char c = decode_utf8(s, pos);
    if (!c.valid() || !in_class(c.code)) return Value(false);
    pos += c.length;
  }
  return Value(!s.empty());
}

// Some character is of one case and none of the other.
template <bool (*wanted)(char32_t), bool (*other)(char32_t)>
Value all_cased(Runtime& rt, const Value& self, const CallArgs& args) {
  Params(args, "method", {});
  const std::string& s = self.text()->bytes();
  rt.budget.bytes(s.size());
  bool some = false;
  for (size_t pos = 0; pos < s.size();) {
    const Utf8Char c = decode_utf8(s, pos);
    if (c.valid() && other(c.code)) return Value(false);
    some |= c.valid() && wanted(c.code);
    pos += c.length;
  }
  return Value(some);
}

Value list_index(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, "index", {"value"});
  const auto& items = self.list()->items;
  for (size_t i = 0; i < items.size(); ++i)
    if (equal(items[i], p.required(0), rt.budget)) return Value(static_cast<int64_t>(i));
  fail("the value is not in the list");
}

Value list_count(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, "count", {"value"});
  const auto& items = self.list()->items;
  const auto n = std::count_if(items.begin(), items.end(),
                               [&](const Value& v) { return equal(v, p.required(0), rt.budget); });
  return Value(static_cast<int64_t>(n));
}

Value copied(Runtime&, const Value& self, const CallArgs& args) {
  Params(args, "copy", {});
  return self;  // nothing can change either
}

Value dict_get(Runtime& rt, const Value& self, const CallArgs& args) {
  const Params p(args, "get", {"key", "default"});
  const Value* found = self.dict()->find(p.required(0), rt.budget);
  return found ? *found : p[1] ? *p[1] : Value::none();
}

enum class DictPart { kKeys, kValues, kItems };

template <DictPart part>
Value dict_view(Runtime& rt, const Value& self, const CallArgs& args) {
  constexpr const char* kLabels[] = {"dict_keys", "dict_values", "dict_items"};
  Params(args, kLabels[static_cast<int>(part)], {});
  std::vector<Value> out;
  for (const auto& [key, value] : self.dict()->entries())
    out.push_back(part == DictPart::kKeys     ? key
                  : part == DictPart::kValues ? value
                                              : make_list(rt.budget, {key, value}, List::Kind::kTuple));
  return make_list(rt.budget, std::move(out), List::Kind::kView, kLabels[static_cast<int>(part)]);
}

constexpr NamedFunction kTextMethods[] = {
    {"capitalize", mapped<capitalize>},
    {"casefold", mapped<to_lower>},
    {"center", padded<Align::kCenter>},
    {"count", counted},
    {"endswith", has_affix<true>},
    {"find", located<false, false>},
    {"format", formatted},
    {"index", located<false, true>},
    {"isalnum", all_are<is_alnum>},
    {"isalpha", all_are<is_alpha>},
    {"isdecimal", all_are<is_decimal>},
    {"isdigit", all_are<is_decimal>},
    {"islower", all_cased<is_lower, is_upper>},
    {"isnumeric", all_are<is_decimal>},
    {"isspace", all_are<is_space>},
    {"isupper", all_cased<is_upper, is_lower>},
    {"join", joined},
    {"ljust", padded<Align::kLeft>},
    {"lower", mapped<to_lower>},
    {"lstrip", stripped<Side::kLeft>},
    {"partition", partition<false>},
    {"removeprefix", without_affix<false>},
    {"removesuffix", without_affix<true>},
    {"replace", replaced},
    {"rfind", located<true, false>},
    {"rindex", located<true, true>},
    {"rjust", padded<Align::kRight>},
    {"rpartition", partition<true>},
    {"rsplit", split_method<true>},
    {"rstrip", stripped<Side::kRight>},
    {"split", split_method<false>},
    {"splitlines", splitlines},
    {"startswith", has_affix<false>},
    {"strip", stripped<Side::kBoth>},
    {"swapcase", mapped<swap_case>},
    {"title", mapped<title_words>},
    {"upper", mapped<to_upper>},
    {"zfill", zfill},
};

constexpr NamedFunction kListMethods[] = {{"copy", copied}, {"count", list_count}, {"index", list_index}};

constexpr NamedFunction kDictMethods[] = {{"copy", copied},
                                          {"get", dict_get},
                                          {"items", dict_view<DictPart::kItems>},
                                          {"keys", dict_view<DictPart::kKeys>},
                                          {"values", dict_view<DictPart::kValues>}};

}  // namespace

std::optional<Value> find_method(const Value& self, std::string_view name) {
  std::span<const NamedFunction> methods;
  if (self.text())
    methods = kTextMethods;
  else if (self.list() && self.list()->indexable())
    methods = kListMethods;
  else if (self.dict())
    methods = kDictMethods;
  for (const NamedFunction& m : methods)
    if (m.name == name) return bind(m.function, self, m.name);
  return std::nullopt;
}

}  // namespace kvasir::jinja
