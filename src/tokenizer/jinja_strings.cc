#include "tokenizer/jinja_strings.h"

#include <string.h>

#include <algorithm>
#include <set>

#include "tokenizer/jinja_print.h"
#include "tokenizer/jinja_unicode.h"
#include "tokenizer/utf8.h"

namespace kvasir::jinja {
namespace {

constexpr size_t kNone = std::string_view::npos;

// Characters that strip takes off.
class CharSet {
 public:
  explicit CharSet(const Text* set) : any_space_(set == nullptr) {
    for (size_t pos = 0; set && pos < set->size();) {
      const Utf8Char c = decode_utf8(set->bytes(), pos);
      chars_.insert(c.code);
      pos += c.length;
    }
  }
  bool has(const Utf8Char& c) const {
    return any_space_ ? c.valid() && is_space(c.code) : chars_.contains(c.code);
  }

 private:
  bool any_space_;
  std::set<char32_t> chars_;
};

// Start of the character that ends at `end` > 0.
size_t char_before(std::string_view text, size_t end) {
  size_t start = end - 1;
  while (start > 0 && end - start < 4 && (static_cast<unsigned char>(text[start]) & 0xc0) == 0x80) --start;
  return start + decode_utf8(text.substr(0, end), start).length == end ? start : end - 1;
}

std::vector<Value> split_space(const Text& text, int64_t limit, Budget& budget) {
  std::vector<Value> out;
  const std::string& s = text.bytes();
  size_t pos = skip_space(s);
  while (pos < s.size()) {
    size_t end = pos;
    if (limit >= 0 && static_cast<int64_t>(out.size()) >= limit) {
      end = s.size();
    } else {
      while (end < s.size() && skip_space(s, end) == end) end += decode_utf8(s, end).length;
    }
    out.push_back(make_text(budget, text.slice(pos, end - pos)));
    pos = skip_space(s, end);
  }
  return out;
}

std::vector<Value> rsplit_space(const Text& text, int64_t limit, Budget& budget) {
  std::vector<Value> out;
  const std::string_view s = text.bytes();
  size_t end = rstrip_end(s);
  while (end > 0) {
    size_t start = end;
    if (limit >= 0 && static_cast<int64_t>(out.size()) >= limit) {
      start = 0;
    } else {
      while (start > 0 && rstrip_end(s.substr(0, start)) == start) start = char_before(s, start);
    }
    out.push_back(make_text(budget, text.slice(start, end - start)));
    end = rstrip_end(s.substr(0, start));
  }
  std::reverse(out.begin(), out.end());
  return out;
}

void require_separator(const Text& separator) {
  if (separator.empty()) fail("empty separator");
}

Text replace_between_chars(const Text& text, const Text& to, int64_t count, Budget& budget) {
  Text out;
  size_t pos = 0;
  for (; count != 0 && pos <= text.size(); --count) {
    budget.bytes(to.size());
    out.append(to);
    const size_t length = pos < text.size() ? decode_utf8(text.bytes(), pos).length : 1;
    if (pos < text.size()) out.append(text, pos, length);
    pos += length;
  }
  if (pos < text.size()) out.append(text, pos, text.size() - pos);
  return out;
}

}  // namespace

size_t find_bytes(std::string_view text, std::string_view needle, size_t from, Budget& budget) {
  budget.bytes(needle.size());
  if (from > text.size() || needle.size() > text.size() - from) return kNone;
  if (needle.empty()) return from;
  const void* hit = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  const size_t at = hit ? static_cast<size_t>(static_cast<const char*>(hit) - text.data()) : kNone;
  budget.bytes((hit ? at : text.size()) - from);
  return at;
}

size_t rfind_bytes(std::string_view text, std::string_view needle, Budget& budget) {
  const std::string backwards(text.rbegin(), text.rend()), reversed(needle.rbegin(), needle.rend());
  budget.bytes(text.size());
  const size_t at = find_bytes(backwards, reversed, 0, budget);
  return at == kNone ? kNone : text.size() - needle.size() - at;
}

size_t count_occurrences(std::string_view text, std::string_view needle, Budget& budget) {
  if (needle.empty()) return count_chars(text) + 1;
  size_t n = 0;
  for (size_t at = 0; (at = find_bytes(text, needle, at, budget)) != kNone; at += needle.size()) ++n;
  return n;
}

Text strip(const Text& text, const Text* set, Side sides, Budget& budget) {
  budget.bytes(text.size() + (set ? 8 * set->size() : 0));
  const CharSet chars(set);
  const std::string_view s = text.bytes();
  size_t begin = 0, end = s.size();
  while (sides != Side::kRight && begin < end) {
    const Utf8Char c = decode_utf8(s, begin);
    if (!chars.has(c)) break;
    begin += c.length;
  }
  while (sides != Side::kLeft && end > begin) {
    const size_t start = char_before(s, end);
    if (!chars.has(decode_utf8(s.substr(0, end), start))) break;
    end = start;
  }
  return text.slice(begin, end - begin);
}

Text replace(const Text& text, const Text& from, const Text& to, int64_t count, Budget& budget) {
  budget.bytes(text.size());
  if (from.empty()) return replace_between_chars(text, to, count, budget);
  Text out;
  size_t pos = 0;
  for (; count != 0; --count) {
    const size_t at = find_bytes(text.bytes(), from.bytes(), pos, budget);
    if (at == kNone) break;
    budget.bytes(to.size());
    out.append(text, pos, at - pos);
    out.append(to);
    pos = at + from.size();
  }
  out.append(text, pos, text.size() - pos);
  return out;
}

std::vector<Value> split(const Text& text, const Text* separator, int64_t limit, Budget& budget) {
  budget.bytes(text.size());
  if (!separator) return split_space(text, limit, budget);
  require_separator(*separator);
  std::vector<Value> out;
  size_t pos = 0;
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t at = find_bytes(text.bytes(), separator->bytes(), pos, budget);
    if (at == kNone) break;
    out.push_back(make_text(budget, text.slice(pos, at - pos)));
    pos = at + separator->size();
  }
  out.push_back(make_text(budget, text.slice(pos)));
  return out;
}

std::vector<Value> rsplit(const Text& text, const Text* separator, int64_t limit, Budget& budget) {
  budget.bytes(text.size());
  if (!separator) return rsplit_space(text, limit, budget);
  require_separator(*separator);
  const std::string_view sep = separator->bytes();
  const std::string backwards(text.bytes().rbegin(), text.bytes().rend()), reversed(sep.rbegin(), sep.rend());
  std::vector<Value> out;
  size_t pos = 0;  // in the reversed text
  const auto piece = [&](size_t until) {
    return make_text(budget, text.slice(text.size() - until, until - pos));
  };
  while (limit < 0 || static_cast<int64_t>(out.size()) < limit) {
    const size_t at = find_bytes(backwards, reversed, pos, budget);
    if (at == kNone) break;
    out.push_back(piece(at));
    pos = at + sep.size();
  }
  out.push_back(piece(text.size()));
  std::reverse(out.begin(), out.end());
  return out;
}

std::vector<Value> split_lines(const Text& text, bool keep_ends, Budget& budget) {
  const std::string& s = text.bytes();
  budget.bytes(s.size());
  const auto ends_line = [](char32_t c) {
    return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 || c == 0x2029;
  };
  std::vector<Value> out;
  size_t start = 0;
  for (size_t pos = 0; pos < s.size();) {
    const Utf8Char c = decode_utf8(s, pos);
    size_t next = pos + c.length;
    if (!c.valid() || !ends_line(c.code)) {
      pos = next;
      continue;
    }
    if (c.code == '\r' && next < s.size() && s[next] == '\n') ++next;
    out.push_back(make_text(budget, text.slice(start, (keep_ends ? next : pos) - start)));
    start = pos = next;
  }
  if (start < s.size()) out.push_back(make_text(budget, text.slice(start)));
  return out;
}

Text repeat(const Text& text, int64_t count, Budget& budget) {
  Text out;
  for (int64_t i = 0; i < count && !text.empty(); ++i) {
    budget.bytes(text.size());
    out.append(text);
  }
  return out;
}

Text join(const std::vector<Value>& items, const Text& separator, Budget& budget) {
  Text out;
  for (size_t i = 0; i < items.size(); ++i) {
    if (i > 0) {
      budget.bytes(separator.size());
      out.append(separator);
    }
    out.append(to_text(items[i], budget));
  }
  return out;
}

Text pad(const Text& text, int64_t width, Align align, std::string_view fill, Budget& budget) {
  const auto length = static_cast<int64_t>(count_chars(text.bytes()));
  budget.bytes(text.size());
  if (width <= length) return text;
  const int64_t missing = width - length;
  // CPython's str.center puts the odd one on the left when the width is odd.
  const int64_t left = align == Align::kLeft    ? 0
                       : align == Align::kRight ? missing
                                                : missing / 2 + (missing & width & 1);
  const Text filler{std::string(fill)};
  Text out = repeat(filler, left, budget);
  out.append(text);
  out.append(repeat(filler, missing - left, budget));
  return out;
}

}  // namespace kvasir::jinja
