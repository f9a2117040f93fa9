#include "tokenizer/jinja_unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <utility>

#include "tokenizer/utf8.h"

namespace kvasir::jinja {
namespace {

// General categories, those of ASCII letters and digits without a table.
utf8proc_category_t category(char32_t c) {
  if (c >= 'a' && c <= 'z') return UTF8PROC_CATEGORY_LL;
  if (c >= 'A' && c <= 'Z') return UTF8PROC_CATEGORY_LU;
  if (c >= '0' && c <= '9') return UTF8PROC_CATEGORY_ND;
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

bool is_cased(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LT;
}

enum class Case { kUpper, kTitle, kLower, kKeep };

void append_mapped(char32_t c, Case to, std::string& out) {
  if (c < 0x80) {
    const char ascii = static_cast<char>(c);
    const bool upper = ascii >= 'A' && ascii <= 'Z', lower = ascii >= 'a' && ascii <= 'z';
    out +=
        (to == Case::kLower ? upper : lower && to != Case::kKeep) ? static_cast<char>(ascii ^ 0x20) : ascii;
    return;
  }
  if (c == U'\u00DF' && (to == Case::kUpper || to == Case::kTitle)) {
    out += to == Case::kUpper ? "SS" : "Ss";
    return;
  }
  const auto code = static_cast<utf8proc_int32_t>(c);
  append_utf8(static_cast<char32_t>(to == Case::kUpper   ? utf8proc_toupper(code)
                                    : to == Case::kTitle ? utf8proc_totitle(code)
                                    : to == Case::kLower ? utf8proc_tolower(code)
                                                         : code),
              &out);
}

// Maps each character to the case that choose(c) names; choose sees them in order.
template <class F>
Text map_chars(const Text& text, F&& choose) {
  Text out;
  text.for_each_run(0, text.size(), [&](std::string_view run, bool mark) {
    std::string mapped;
    mapped.reserve(run.size());
    for (size_t pos = 0; pos < run.size();) {
      const Utf8Char c = decode_utf8(run, pos);
      if (c.valid())
        append_mapped(c.code, choose(c.code), mapped);
      else
        mapped += run.substr(pos, c.length);
      pos += c.length;
    }
    out.append(mapped, mark);
  });
  return out;
}

}  // namespace

size_t count_chars(std::string_view text) {
  size_t n = 0;
  for (size_t pos = 0; pos < text.size(); ++n)
    pos += static_cast<unsigned char>(text[pos]) < 0x80 ? 1 : decode_utf8(text, pos).length;
  return n;
}

size_t byte_offset(std::string_view text, size_t index) {
  size_t pos = 0;
  for (; index > 0 && pos < text.size(); --index)
    pos += static_cast<unsigned char>(text[pos]) < 0x80 ? 1 : decode_utf8(text, pos).length;
  return pos;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  return c == 0x85 || c == 0xa0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200a) || c == 0x2028 ||
         c == 0x2029 || c == 0x202f || c == 0x205f || c == 0x3000;
}

bool is_alpha(char32_t c) {
  const auto k = category(c);
  return k >= UTF8PROC_CATEGORY_LU && k <= UTF8PROC_CATEGORY_LO;
}

bool is_decimal(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_ND;
}

bool is_alnum(char32_t c) {
  const auto k = category(c);
  return is_alpha(c) || (k >= UTF8PROC_CATEGORY_ND && k <= UTF8PROC_CATEGORY_NO);
}

bool is_upper(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LU;
}
bool is_lower(char32_t c) {
  return category(c) == UTF8PROC_CATEGORY_LL;
}

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c < 0x7f;
  switch (category(c)) {
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_ZS:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
      return false;
    default:
      return true;
  }
}

size_t skip_space(std::string_view text, size_t pos) {
  while (pos < text.size()) {
    const Utf8Char c = decode_utf8(text, pos);
    if (!c.valid() || !is_space(c.code)) break;
    pos += c.length;
  }
  return pos;
}

size_t rstrip_end(std::string_view text) {
  size_t end = text.size();
  while (end > 0) {
    size_t start = end - 1;
    while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
    const Utf8Char c = decode_utf8(text.substr(0, end), start);
    if (!c.valid() || start + c.length != end || !is_space(c.code)) break;
    end = start;
  }
  return end;
}

Text to_upper(const Text& text) {
  return map_chars(text, [](char32_t) { return Case::kUpper; });
}

Text to_lower(const Text& text) {
  return map_chars(text, [](char32_t) { return Case::kLower; });
}

Text swap_case(const Text& text) {
  return map_chars(text, [](char32_t c) {
    return is_upper(c) ? Case::kLower : is_lower(c) ? Case::kUpper : Case::kKeep;
  });
}

Text capitalize(const Text& text) {
  bool first = true;
  return map_chars(text, [&](char32_t) { return std::exchange(first, false) ? Case::kTitle : Case::kLower; });
}

Text title_words(const Text& text) {
  bool in_word = false;
  return map_chars(text, [&](char32_t c) {
    const bool letter = is_cased(c);
    const bool starts = letter && !in_word;
    in_word = letter;
    return starts ? Case::kTitle : Case::kLower;
  });
}

Text title_filter(const Text& text) {
  bool in_word = false;
  return map_chars(text, [&](char32_t c) {
    const bool parts = is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
    const bool starts = !parts && !in_word;
    in_word = !parts;
    return starts ? Case::kUpper : Case::kLower;
  });
}

}  // namespace kvasir::jinja
