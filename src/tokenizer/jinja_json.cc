#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tokenizer/jinja_print.h"
#include "tokenizer/jinja_unicode.h"
#include "tokenizer/utf8.h"

namespace kvasir::jinja {
namespace {

void append_unit(uint32_t unit, std::string& out) {
  out += fmt::format("\\u{:04x}", unit);
}

void append_json_char(std::string_view bytes, char32_t c, bool valid, bool ascii, std::string& out) {
  constexpr std::string_view kNamed = "\"\\\n\r\t\f\b", kLetters = "\"\\nrtfb";
  if (const size_t at = c < 0x80 ? kNamed.find(static_cast<char>(c)) : kNamed.npos;
      valid && at != kNamed.npos) {
    out += '\\';
    out += kLetters[at];
  } else if (c < 0x20) {
    append_unit(c, out);
  } else if (c < 0x80 || !ascii) {
    out += valid ? bytes : kReplacementUtf8;
  } else if (c <= 0xffff) {
    append_unit(c, out);
  } else {
    append_unit(0xd800 + ((c - 0x10000) >> 10), out);
    append_unit(0xdc00 + ((c - 0x10000) & 0x3ff), out);
  }
}

class JsonWriter {
 public:
  JsonWriter(Text& out, const JsonStyle& style, Budget& budget) : out_(out), style_(style), budget_(budget) {}

  void value(const Value& v, size_t level) {
    budget_.step();
    budget_.check_output(out_.size());
    if (const Text* t = v.text())
      string(*t);
    else if (const List* l = v.list(); l && l->kind <= List::Kind::kTuple)
      list(*l, level);
    else if (const Dict* d = v.dict())
      dict(*d, level);
    else if (v.is_none() || v.is_number())
      plain(scalar(v));
    else
      fail(fmt::format("Object of type {} is not JSON serializable", v.type_name()));
  }

 private:
  void plain(std::string_view s) { out_.append(s, false); }

  void separator(const Text& text) {
    budget_.bytes(text.size());
    out_.append(text);
  }

  static std::string scalar(const Value& v) {
    if (v.is_none()) return "null";
    if (v.is<bool>()) return v.truthy() ? "true" : "false";
    if (const auto i = v.integer()) return std::to_string(*i);
    const double d = *v.number();
    if (std::isnan(d)) return "NaN";
    return std::isinf(d) ? (d < 0 ? "-Infinity" : "Infinity") : float_repr(d);
  }

  void string(const Text& text) {
    budget_.bytes(text.size());
    plain("\"");
    text.for_each_run(0, text.size(), [&](std::string_view run, bool mark) {
      std::string escaped;
      for (size_t pos = 0; pos < run.size();) {
        const Utf8Char c = decode_utf8(run, pos);
        append_json_char(run.substr(pos, c.length), c.code, c.valid(), style_.ensure_ascii, escaped);
        pos += c.length;
      }
      out_.append(escaped, mark);
    });
    plain("\"");
  }

  void new_line(size_t level) {
    if (!style_.pretty) return;
    budget_.bytes(level * style_.indent.size());
    plain("\n");
    for (size_t i = 0; i < level; ++i) plain(style_.indent);
  }

  void list(const List& l, size_t level) {
    if (l.items.empty()) return plain("[]");
    plain("[");
    for (size_t i = 0; i < l.items.size(); ++i) {
      if (i > 0) separator(style_.item_separator);
      new_line(level + 1);
      value(l.items[i], level + 1);
    }
    new_line(level);
    plain("]");
  }

  std::vector<const Dict::Entries::value_type*> ordered(const Dict& d) {
    std::vector<const Dict::Entries::value_type*> out;
    for (const auto& entry : d.entries()) out.push_back(&entry);
    if (style_.sort_keys)
      std::stable_sort(out.begin(), out.end(),
                       [&](const auto* a, const auto* b) { return less(a->first, b->first, budget_); });
    return out;
  }

  void dict(const Dict& d, size_t level) {
    if (d.entries().empty()) return plain("{}");
    budget_.values(d.entries().size());
    plain("{");
    bool first = true;
    for (const auto* entry : ordered(d)) {
      if (!std::exchange(first, false)) separator(style_.item_separator);
      new_line(level + 1);
      if (const Text* key = entry->first.text())
        string(*key);
      else if (entry->first.is_none() || entry->first.is_number())
        plain("\"" + scalar(entry->first) + "\"");
      else
        fail("keys must be str, int, float, bool or None, not " + std::string(entry->first.type_name()));
      separator(style_.key_separator);
      value(entry->second, level + 1);
    }
    new_line(level);
    plain("}");
  }

  Text& out_;
  const JsonStyle& style_;
  Budget& budget_;
};

}  // namespace

Text to_json(const Value& value, const JsonStyle& style, Budget& budget) {
  Text out;
  JsonWriter(out, style, budget).value(value, 0);
  return out;
}

}  // namespace kvasir::jinja
