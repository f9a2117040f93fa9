// Filters that give strings and numbers.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_print.h"
#include "tokenizer/jinja_strings.h"
#include "tokenizer/jinja_unicode.h"
#include "tokenizer/utf8.h"

namespace kvasir::jinja {
namespace {

template <Text (*map)(const Text&)>
Value mapped(Runtime& rt, const Value& input, const CallArgs& args) {
  Params(args, "filter", {});
  return make_text(rt.budget, map(to_text(input, rt.budget)));
}

Value string_filter(Runtime& rt, const Value& input, const CallArgs& args) {
  Params(args, "string", {});
  return input.text() ? input : make_text(rt.budget, to_text(input, rt.budget));
}

Value trim(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "trim", {"chars"});
  return make_text(rt.budget, strip(to_text(input, rt.budget), p.text(0), Side::kBoth, rt.budget));
}

Value replace_filter(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "replace", {"old", "new", "count"});
  const Text from = to_text(p.required(0), rt.budget), to = to_text(p.required(1), rt.budget);
  return make_text(rt.budget, replace(to_text(input, rt.budget), from, to, p.integer(2, -1), rt.budget));
}

Value center(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "center", {"width"});
  return make_text(rt.budget,
                   pad(to_text(input, rt.budget), p.integer(0, 80), Align::kCenter, " ", rt.budget));
}

Value indent(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "indent", {"width", "first", "blank"});
  const Text* given = p[0] ? p[0]->text() : nullptr;
  const Text indention = given ? *given : repeat(Text(" "), p.integer(0, 4), rt.budget);
  input.require_defined();
  if (!input.text()) fail(fmt::format("indent() needs a str, not a {}", input.type_name()));
  Text text = to_text(input, rt.budget);
  text.append("\n", false);
  const auto lines = split_lines(text, false, rt.budget);
  const bool blank = p.flag(2, false);
  Text out;
  for (size_t i = 0; i < lines.size(); ++i) {
    const Text& line = *lines[i].text();
    rt.budget.bytes(indention.size());
    if (i > 0) out.append("\n", false);
    if (i == 0 ? p.flag(1, false) : blank || !line.empty()) out.append(indention);
    out.append(line);
  }
  return make_text(rt.budget, std::move(out));
}

Value truncate(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "truncate", {"length", "killwords", "end", "leeway"});
  const Text text = to_text(input, rt.budget), end = p.text(2) ? *p.text(2) : Text("...");
  const int64_t length = p.integer(0, 255), leeway = p.integer(3, 5);
  const auto tail = static_cast<int64_t>(count_chars(end.bytes()));
  if (length < tail || leeway < 0)
    fail("truncate(): the length is less than the ending's, or the leeway negative");
  if (static_cast<int64_t>(count_chars(text.bytes())) <= length + std::min<int64_t>(leeway, 1 << 30))
    return make_text(rt.budget, text);
  Text out = text.slice(0, byte_offset(text.bytes(), static_cast<size_t>(length - tail)));
  if (!p.flag(1, false))
    if (const size_t space = out.bytes().rfind(' '); space != std::string::npos) out = out.slice(0, space);
  out.append(end);
  return make_text(rt.budget, std::move(out));
}

Value wordcount(Runtime& rt, const Value& input, const CallArgs& args) {
  Params(args, "wordcount", {});
  const Text text = to_text(input, rt.budget);
  int64_t words = 0;
  bool inside = false;
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text.bytes(), pos);
    const bool word = c.valid() && (c.code == '_' || is_alnum(c.code));
    words += word && !inside ? 1 : 0;
    inside = word;
    pos += c.length;
  }
  return Value(words);
}

// Each byte that `escape` has a text for becomes it.
template <class F>
Text escape_bytes(const Text& text, F&& escape) {
  Text out;
  text.for_each_run(0, text.size(), [&](std::string_view run, bool mark) {
    std::string s;
    for (char c : run) s += escape(c);
    out.append(s, mark);
  });
  return out;
}

Value escape(Runtime& rt, const Value& input, const CallArgs& args) {
  Params(args, "escape", {});
  return make_text(rt.budget, escape_bytes(to_text(input, rt.budget), [](char c) -> std::string {
                     switch (c) {
                       case '&':
                         return "&amp;";
                       case '<':
                         return "&lt;";
                       case '>':
                         return "&gt;";
                       case '\'':
                         return "&#39;";
                       case '"':
                         return "&#34;";
                       default:
                         return std::string(1, c);
                     }
                   }));
}

Value urlencode(Runtime& rt, const Value& input, const CallArgs& args) {
  Params(args, "urlencode", {});
  return make_text(rt.budget, escape_bytes(to_text(input, rt.budget), [](char c) -> std::string {
                     const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                                        (c >= '0' && c <= '9') ||
                                        std::string_view("_.-~/").find(c) != std::string_view::npos;
                     return plain ? std::string(1, c) : fmt::format("%{:02X}", static_cast<unsigned char>(c));
                   }));
}

Value format_filter(Runtime& rt, const Value& input, const CallArgs& args) {
  if (!args.named.empty() && !args.positional.empty())
    fail("format(): positional and named values cannot be mixed");
  const Text format = to_text(input, rt.budget);
  if (args.named.empty())
    return make_text(rt.budget,
                     percent_format(rt, format, make_list(rt.budget, args.positional, List::Kind::kTuple)));
  auto values = std::make_shared<Dict>();
  for (const auto& [name, value] : args.named) values->set(Value(Text(name)), value, rt.budget);
  return make_text(rt.budget, percent_format(rt, format, Value(Value::DictPtr(std::move(values)))));
}

Value tojson(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = p.flag(0, false);
  style.sort_keys = p.flag(3, false);
  if (p[1] && !p[1]->is_none()) {
    style.pretty = true;
    style.item_separator = Text(",");
    style.indent =
        p[1]->text() ? p[1]->text()->bytes() : repeat(Text(" "), p.integer(1, 0), rt.budget).bytes();
  }
  if (p[2] && !p[2]->is_none()) {
    const auto parts = iterate(*p[2], rt.budget);
    if (parts.size() != 2 || !parts[0].text() || !parts[1].text())
      fail("tojson(): separators must be two strings");
    style.item_separator = *parts[0].text();
    style.key_separator = *parts[1].text();
  }
  return make_text(rt.budget, to_json(input, style, rt.budget));
}

// Python's float() of a string.
std::optional<double> parse_float(std::string_view s) {
  s = s.substr(skip_space(s));
  s = s.substr(0, rstrip_end(s));
  if (s.starts_with('+') && !s.substr(1).starts_with('-')) s.remove_prefix(1);
  double d = 0.0;
  const auto r = std::from_chars(s.data(), s.data() + s.size(), d);
  return r.ec == std::errc() && r.ptr == s.data() + s.size() ? std::optional<double>(d) : std::nullopt;
}

std::optional<int64_t> parse_int(std::string_view s, int base) {
  s = s.substr(skip_space(s));
  s = s.substr(0, rstrip_end(s));
  const bool minus = s.starts_with('-');
  if (minus || s.starts_with('+')) s.remove_prefix(1);
  constexpr std::string_view kPrefix = "xob";
  constexpr int kBases[] = {16, 8, 2};
  if (s.size() > 2 && s[0] == '0')
    if (const size_t at = kPrefix.find(static_cast<char>(s[1] | 0x20));
        at != kPrefix.npos && (base == kBases[at] || base == 0)) {
      base = kBases[at];
      s.remove_prefix(2);
    }
  std::string digits;
  for (size_t i = 0; i < s.size(); ++i)
    if (s[i] != '_' || i == 0 || i + 1 == s.size() || s[i - 1] == '_') digits += s[i];
  int64_t n = 0;
  const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), n, base == 0 ? 10 : base);
  if (r.ec != std::errc() || r.ptr != digits.data() + digits.size() || digits.starts_with('-'))
    return std::nullopt;
  return minus ? -n : n;
}

Value int_filter(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "int", {"default", "base"});
  input.require_defined();
  if (const auto i = input.integer()) return Value(*i);
  std::optional<double> d = input.number();
  if (const Text* t = input.text()) {
    rt.budget.bytes(t->size());
    const int64_t base = p.integer(1, 10);
    if (base != 0 && (base < 2 || base > 36)) fail("int(): the base must be 0 or 2 to 36");
    if (const auto i = parse_int(t->bytes(), static_cast<int>(base))) return Value(*i);
    d = parse_float(t->bytes());
  }
  if (d && std::abs(*d) < 0x1p63) return Value(static_cast<int64_t>(*d));
  return p[0] ? *p[0] : Value(int64_t{0});
}

Value float_filter(Runtime& rt, const Value& input, const CallArgs& args) {
  const Params p(args, "float", {"default"});
  input.require_defined();
  std::optional<double> d = input.number();
  if (const Text* t = input.text()) {
    rt.budget.bytes(t->size());
    d = parse_float(t->bytes());
  }
  return d ? Value(*d) : p[0] ? *p[0] : Value(0.0);
}

Value abs_filter(Runtime&, const Value& input, const CallArgs& args) {
  Params(args, "abs", {});
  input.require_defined();
  if (!input.is_number()) fail(fmt::format("bad operand type for abs(): '{}'", input.type_name()));
  return *input.number() < 0.0 ? negate(input, true) : negate(input, false);
}

Value round_filter(Runtime&, const Value& input, const CallArgs& args) {
  const Params p(args, "round", {"precision", "method"});
  input.require_defined();
  const std::string method = p.text(1) ? p.text(1)->bytes() : "common";
  const int64_t precision = p.integer(0, 0);
  if (!input.is_number()) fail(fmt::format("a {} cannot be rounded", input.type_name()));
  if (precision < 0 || precision > 300) fail("round(): the precision must be 0 to 300");
  const double d = *input.number();
  if (method == "common") {
    if (const auto i = input.integer()) return Value(*i);
    if (!std::isfinite(d)) return input;
    return Value(*parse_float(fmt::format("{:.{}f}", d, precision)));
  }
  if (method != "ceil" && method != "floor") fail("round(): the method must be common, ceil or floor");
  const double scale = std::pow(10.0, static_cast<double>(precision));
  return Value((method == "ceil" ? std::ceil(d * scale) : std::floor(d * scale)) / scale);
}

Value default_filter(Runtime&, const Value& input, const CallArgs& args) {
  const Params p(args, "default", {"default_value", "boolean"});
  if (!input.is_undefined() && (!p.flag(1, false) || input.truthy())) return input;
  return p[0] ? *p[0] : Value(Text());
}

constexpr NamedFunction kFilters[] = {
    {"abs", abs_filter},         {"capitalize", mapped<capitalize>},
    {"center", center},          {"d", default_filter},
    {"default", default_filter}, {"e", escape},
    {"escape", escape},          {"float", float_filter},
    {"forceescape", escape},     {"format", format_filter},
    {"indent", indent},          {"int", int_filter},
    {"lower", mapped<to_lower>}, {"replace", replace_filter},
    {"round", round_filter},     {"safe", string_filter},
    {"string", string_filter},   {"title", mapped<title_filter>},
    {"tojson", tojson},          {"trim", trim},
    {"truncate", truncate},      {"upper", mapped<to_upper>},
    {"urlencode", urlencode},    {"wordcount", wordcount},
};

}  // namespace

Function find_text_filter(std::string_view name) {
  const auto* it = std::find_if(std::begin(kFilters), std::end(kFilters),
                                [&](const NamedFunction& f) { return f.name == name; });
  return it == std::end(kFilters) ? nullptr : it->function;
}

}  // namespace kvasir::jinja
