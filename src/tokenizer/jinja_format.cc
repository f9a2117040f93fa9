// Python's two ways to fill in strings, as far as templates use them.

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "tokenizer/jinja_library.h"
#include "tokenizer/jinja_print.h"
#include "tokenizer/jinja_strings.h"
#include "tokenizer/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

constexpr int64_t kMaxField = 1000;  // characters of a field's width or precision

// How one field is to look: "%-08.3f" or "{:>8.3f}".
struct Field {
  std::string fill = " ";
  char align = '\0';  // '<', '>', '^'; 0: by type
  bool plus = false, zero = false, commas = false;
  int64_t width = 0, precision = -1;
  char type = 's';
};

std::string with_commas(std::string digits) {
  const size_t end = std::min(digits.find('.'), digits.size());
  const size_t begin = digits.starts_with('-') ? 1 : 0;
  for (size_t i = end; i > begin + 3;) {
    i -= 3;
    digits.insert(i, ",");
  }
  return digits;
}

int64_t whole_number(const Value& v, const Field& f) {
  if (const auto i = v.integer()) return *i;
  const auto d = v.number();
  if (!d || !(std::abs(*d) < 0x1p63))
    fail(fmt::format("%{} format: a number is required, not {}", f.type, v.type_name()));
  return static_cast<int64_t>(*d);
}

std::string number_text(const Value& v, const Field& f) {
  std::string s;
  if (f.type == 'd' || f.type == 'i' || f.type == 'u') {
    s = std::to_string(whole_number(v, f));
  } else if (f.type == 'x' || f.type == 'X' || f.type == 'o') {
    const int64_t n = whole_number(v, f);
    const uint64_t size = n < 0 ? 0 - static_cast<uint64_t>(n) : static_cast<uint64_t>(n);
    s = (n < 0 ? "-" : "") + (f.type == 'x'   ? fmt::format("{:x}", size)
                              : f.type == 'X' ? fmt::format("{:X}", size)
                                              : fmt::format("{:o}", size));
  } else {
    const auto d = v.number();
    if (!d) fail(fmt::format("%{} format: a number is required, not {}", f.type, v.type_name()));
    const int precision = static_cast<int>(f.precision < 0 ? 6 : f.precision);
    switch (f.type) {
      case 'e':
        s = fmt::format("{:.{}e}", *d, precision);
        break;
      case 'g':
        s = fmt::format("{:.{}g}", *d, precision);
        break;
      case '%':
        s = fmt::format("{:.{}f}%", *d * 100.0, precision);
        break;
      default:
        s = fmt::format("{:.{}f}", *d, precision);
    }
  }
  if (f.commas) s = with_commas(std::move(s));
  return f.plus && !s.starts_with('-') ? "+" + s : s;
}

void append_field(Text value, const Field& f, bool numeric, Budget& budget, Text& out) {
  if (f.zero && numeric && f.align == '\0') {
    const bool sign = value.bytes().starts_with('-') || value.bytes().starts_with('+');
    out.append(value, 0, sign ? 1 : 0);
    out.append(pad(value.slice(sign ? 1 : 0), f.width - (sign ? 1 : 0), Align::kRight, "0", budget));
    return;
  }
  const char align = f.align ? f.align : numeric ? '>' : '<';
  const int64_t length = static_cast<int64_t>(count_chars(value.bytes()));
  if (align == '^') {
    out.append(repeat(Text(f.fill), (f.width - length) / 2, budget));
    value.append(
        repeat(Text(f.fill), f.width - length - std::max<int64_t>(0, (f.width - length) / 2), budget));
    out.append(value);
  } else {
    out.append(pad(value, f.width, align == '<' ? Align::kLeft : Align::kRight, f.fill, budget));
  }
}

Text cut(Text text, const Field& f) {
  return f.precision < 0 ? text : text.slice(0, byte_offset(text.bytes(), static_cast<size_t>(f.precision)));
}

// Digits at `pos`, as a width or precision.
int64_t read_count(std::string_view s, size_t& pos) {
  int64_t n = 0;
  for (; pos < s.size() && s[pos] >= '0' && s[pos] <= '9'; ++pos) {
    n = n * 10 + (s[pos] - '0');
    if (n > kMaxField) fail(fmt::format("a format's width or precision is beyond {}", kMaxField));
  }
  return n;
}

// The arguments of %, taken in order or by name.
class PercentArgs {
 public:
  PercentArgs(Runtime& rt, const Value& values) : rt_(rt), values_(values) {
    const List* l = values.list();
    tuple_ = l && l->kind == List::Kind::kTuple ? l : nullptr;
  }
  Value by_name(std::string_view name) {
    const Value* v = values_.dict() ? values_.dict()->find(name) : nullptr;
    if (!v) fail(fmt::format("a format names '{}', which is not among its values", name));
    named_ = true;
    return *v;
  }
  Value next() {
    if (taken_ >= (tuple_ ? tuple_->items.size() : 1)) fail("not enough arguments for format string");
    ++taken_;
    return tuple_ ? tuple_->items[taken_ - 1] : values_;
  }
  void finish() const {
    // Python takes anything with subscripts but a tuple or string for values by name.
    const size_t given = tuple_                                                       ? tuple_->items.size()
                         : values_.dict() || values_.list() || values_.is_undefined() ? 0
                                                                                      : 1;
    if (!named_ && taken_ < given) fail("not all arguments converted during string formatting");
  }
  Runtime& runtime() { return rt_; }

 private:
  Runtime& rt_;
  const Value& values_;
  const List* tuple_ = nullptr;
  size_t taken_ = 0;
  bool named_ = false;
};

// One "%..." at `pos`, just after the sign.
void percent_field(std::string_view s, size_t& pos, PercentArgs& args, Text& out) {
  Field f;
  std::optional<Value> value;
  if (pos < s.size() && s[pos] == '(') {
    const size_t end = s.find(')', pos);
    if (end == s.npos) fail("incomplete format key");
    value = args.by_name(s.substr(pos + 1, end - pos - 1));
    pos = end + 1;
  }
  for (; pos < s.size() && std::string_view("-+ 0#").find(s[pos]) != s.npos; ++pos) {
    f.align = s[pos] == '-' ? '<' : f.align;
    f.plus |= s[pos] == '+';
    f.zero |= s[pos] == '0';
  }
  f.width = read_count(s, pos);
  if (pos < s.size() && s[pos] == '.') f.precision = read_count(s, ++pos);
  if (pos >= s.size()) fail("incomplete format");
  f.type = s[pos++];
  if (std::string_view("sradiuxXoefgF").find(f.type) == s.npos)
    fail(fmt::format("unsupported format character '{}'", f.type));
  const Value v = value ? *value : args.next();
  Budget& budget = args.runtime().budget;
  if (f.type == 's' || f.type == 'r' || f.type == 'a') {
    f.align = f.align ? f.align : '>';
    return append_field(cut(f.type == 's' ? to_text(v, budget) : to_repr(v, budget), f), f, false, budget,
                        out);
  }
  append_field(Text(number_text(v, f)), f, true, budget, out);
}

Field parse_spec(std::string_view s) {
  Field f;
  size_t pos = 0;
  constexpr std::string_view kAligns = "<>^";
  const size_t first = s.empty() ? 0 : byte_offset(s, 1);
  if (first < s.size() && kAligns.find(s[first]) != s.npos) {
    f.fill = s.substr(0, first);
    f.align = s[first];
    pos = first + 1;
  } else if (!s.empty() && kAligns.find(s[0]) != s.npos) {
    f.align = s[pos++];
  }
  if (pos < s.size() && (s[pos] == '+' || s[pos] == '-')) f.plus = s[pos++] == '+';
  if (pos < s.size() && s[pos] == '0') {
    f.zero = true;
    ++pos;
  }
  f.width = read_count(s, pos);
  if (pos < s.size() && s[pos] == ',') {
    f.commas = true;
    ++pos;
  }
  if (pos < s.size() && s[pos] == '.') f.precision = read_count(s, ++pos);
  f.type = pos < s.size() ? s[pos++] : '\0';
  if (pos < s.size() || (f.type && std::string_view("sdxXoefgF%").find(f.type) == s.npos))
    fail("invalid format specifier");
  return f;
}

// "name", "0", "name.attribute", "name[key]" or "" for the next one.
Value brace_value(Runtime& rt, std::string_view name, const CallArgs& args, size_t& next) {
  const size_t end = std::min({name.find('.'), name.find('['), name.size()});
  const std::string_view head = name.substr(0, end);
  if (end < name.size()) fail("attributes in format fields are not supported");
  size_t index = 0;
  if (head.empty()) {
    index = next++;
  } else if (std::from_chars(head.data(), head.data() + head.size(), index).ec != std::errc()) {
    for (const auto& [key, value] : args.named)
      if (key == head) return value;
    fail(fmt::format("a format names '{}', which is not among its values", head));
  }
  rt.budget.step();
  if (index >= args.positional.size()) fail("not enough arguments for format string");
  return args.positional[index];
}

void brace_field(Runtime& rt, std::string_view body, const CallArgs& args, size_t& next, Text& out) {
  const size_t colon = std::min(body.find(':'), body.size());
  std::string_view name = body.substr(0, colon);
  const Field f = parse_spec(colon < body.size() ? body.substr(colon + 1) : "");
  const bool repr = name.ends_with("!r");
  if (repr || name.ends_with("!s")) name.remove_suffix(2);
  const Value v = brace_value(rt, name, args, next);
  if (!repr && f.type && f.type != 's') return append_field(Text(number_text(v, f)), f, true, rt.budget, out);
  if (!repr && v.is_number() && !v.is<bool>() && (f.commas || f.precision >= 0)) {
    Field as_number = f;
    as_number.type = v.is<int64_t>() ? 'd' : f.precision >= 0 ? 'g' : 'f';
    return append_field(Text(number_text(v, as_number)), f, true, rt.budget, out);
  }
  append_field(cut(repr ? to_repr(v, rt.budget) : to_text(v, rt.budget), f), f, v.is_number(), rt.budget,
               out);
}

}  // namespace

Text percent_format(Runtime& runtime, const Text& format, const Value& values) {
  const std::string_view s = format.bytes();
  runtime.budget.bytes(s.size());
  PercentArgs args(runtime, values);
  Text out;
  for (size_t pos = 0; pos < s.size();) {
    const size_t sign = std::min(s.find('%', pos), s.size());
    out.append(format, pos, sign - pos);
    pos = sign;
    if (pos >= s.size()) break;
    ++pos;
    if (pos < s.size() && s[pos] == '%')
      out.append(format, pos++, 1);
    else
      percent_field(s, pos, args, out);
    runtime.budget.check_output(out.size());
  }
  args.finish();
  return out;
}

Text brace_format(Runtime& runtime, const Text& format, const CallArgs& args) {
  const std::string_view s = format.bytes();
  runtime.budget.bytes(s.size());
  Text out;
  size_t next = 0;
  for (size_t pos = 0; pos < s.size();) {
    const size_t brace = std::min(s.find_first_of("{}", pos), s.size());
    out.append(format, pos, brace - pos);
    pos = brace;
    if (pos >= s.size()) break;
    if (pos + 1 < s.size() && s[pos + 1] == s[pos]) {
      out.append(format, pos, 1);
      pos += 2;
      continue;
    }
    const size_t end = s.find('}', pos);
    if (s[pos] == '}' || end == s.npos) fail("a single brace in a format string");
    brace_field(runtime, s.substr(pos + 1, end - pos - 1), args, next, out);
    pos = end + 1;
    runtime.budget.check_output(out.size());
  }
  return out;
}

}  // namespace kvasir::jinja
