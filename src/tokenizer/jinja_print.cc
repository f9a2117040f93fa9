#include "tokenizer/jinja_print.h"

#include <fmt/format.h>

#include <charconv>
#include <cmath>

#include "tokenizer/jinja_object.h"
#include "tokenizer/jinja_unicode.h"
#include "tokenizer/utf8.h"

namespace kvasir::jinja {
namespace {

// One character of a string's repr.
void append_repr_char(std::string_view bytes, char32_t c, bool valid, char quote, std::string& out) {
  if (!valid) {
    out += kReplacementUtf8;
  } else if (c == static_cast<unsigned char>(quote) || c == '\\') {
    out += '\\';
    out += bytes;
  } else if (c == '\n' || c == '\r' || c == '\t') {
    out += c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t";
  } else if (is_printable(c)) {
    out += bytes;
  } else if (c <= 0xff) {
    out += fmt::format("\\x{:02x}", static_cast<uint32_t>(c));
  } else if (c <= 0xffff) {
    out += fmt::format("\\u{:04x}", static_cast<uint32_t>(c));
  } else {
    out += fmt::format("\\U{:08x}", static_cast<uint32_t>(c));
  }
}

class Printer {
 public:
  Printer(Text& out, Budget& budget) : out_(out), budget_(budget) {}

  void repr(const Value& value) {
    budget_.step();
    budget_.check_output(out_.size());
    if (const Text* t = value.text())
      quoted(*t);
    else if (const List* l = value.list())
      list(*l);
    else if (const Dict* d = value.dict())
      dict(*d);
    else
      scalar(value);
  }

  void scalar(const Value& value) {
    if (value.is_undefined())
      plain("Undefined");
    else if (value.is_none())
      plain("None");
    else if (value.is<bool>())
      plain(value.truthy() ? "True" : "False");
    else if (const auto i = value.integer())
      plain(std::to_string(*i));
    else if (const auto d = value.number())
      plain(float_repr(*d));
    else
      plain(fmt::format("<{} object>", value.type_name()));
  }

 private:
  void plain(std::string_view s) { out_.append(s, false); }

  void quoted(const Text& text) {
    budget_.bytes(text.size());
    const std::string& s = text.bytes();
    const char quote = s.find('\'') != s.npos && s.find('"') == s.npos ? '"' : '\'';
    plain({&quote, 1});
    text.for_each_run(0, s.size(), [&](std::string_view run, bool mark) {
      std::string escaped;
      for (size_t pos = 0; pos < run.size();) {
        const Utf8Char c = decode_utf8(run, pos);
        append_repr_char(run.substr(pos, c.length), c.code, c.valid(), quote, escaped);
        pos += c.length;
      }
      out_.append(escaped, mark);
    });
    plain({&quote, 1});
  }

  void items(const std::vector<Value>& values) {
    for (size_t i = 0; i < values.size(); ++i) {
      if (i > 0) plain(", ");
      repr(values[i]);
    }
  }

  void list(const List& l) {
    switch (l.kind) {
      case List::Kind::kList:
        plain("[");
        items(l.items);
        return plain("]");
      case List::Kind::kTuple:
        plain("(");
        items(l.items);
        return plain(l.items.size() == 1 ? ",)" : ")");
      case List::Kind::kView:
        plain(l.label + "([");
        items(l.items);
        return plain("])");
      case List::Kind::kRange:
        return plain(l.label);
      case List::Kind::kGenerator:
        return plain("<generator object>");
    }
  }

  void dict(const Dict& d) {
    plain("{");
    bool first = true;
    for (const auto& [key, value] : d.entries()) {
      if (!std::exchange(first, false)) plain(", ");
      repr(key);
      plain(": ");
      repr(value);
    }
    plain("}");
  }

  Text& out_;
  Budget& budget_;
};

}  // namespace

std::string float_repr(double d) {
  if (std::isnan(d)) return "nan";
  if (std::isinf(d)) return d < 0 ? "-inf" : "inf";
  char buffer[32];
  const auto end =
      std::to_chars(buffer, buffer + sizeof buffer, std::abs(d), std::chars_format::scientific).ptr;
  const std::string_view all(buffer, static_cast<size_t>(end - buffer));
  const size_t e = all.find('e');
  int exponent = 0;
  const char* digits_of_exponent = all.data() + e + (all[e + 1] == '+' ? 2 : 1);
  std::from_chars(digits_of_exponent, end, exponent);
  std::string digits(1, all[0]);
  if (e > 2) digits += all.substr(2, e - 2);
  std::string out = std::signbit(d) ? "-" : "";
  const auto count = static_cast<int>(digits.size());
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (count > 1) out += "." + digits.substr(1);
    return out + fmt::format("e{}{:02d}", exponent < 0 ? '-' : '+', std::abs(exponent));
  }
  if (exponent < 0) return out + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  if (count <= exponent + 1)
    return out + digits + std::string(static_cast<size_t>(exponent + 1 - count), '0') + ".0";
  const auto point = static_cast<size_t>(exponent + 1);
  return out + digits.substr(0, point) + "." + digits.substr(point);
}

Text to_text(const Value& value, Budget& budget) {
  if (const Text* t = value.text()) {
    budget.bytes(t->size());
    return *t;
  }
  return value.is_undefined() ? Text() : to_repr(value, budget);
}

Text to_repr(const Value& value, Budget& budget) {
  Text out;
  Printer(out, budget).repr(value);
  return out;
}

}  // namespace kvasir::jinja
