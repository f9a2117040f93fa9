#include "tokenizer/nfc.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"
#include "tokenizer/utf8.h"

namespace kvasir {
namespace {

constexpr char32_t kFirstMark = 0x300;  // everything below is in NFC, and only what is above can change it
constexpr uint16_t kNone = UINT16_MAX;

const utf8proc_property_t& property_of(char32_t code) {
  return *utf8proc_get_property(static_cast<utf8proc_int32_t>(code));
}

bool is_hangul(char32_t code) {
  return (code >= 0x1100 && code < 0x1200) || (code >= 0xAC00 && code < 0xD7A4);
}

// Neither decomposes nor reorders nor composes with a neighbour: such a character stands for itself and
// separates.
bool is_inert(char32_t code) {
  const utf8proc_property_t& p = property_of(code);
  return p.combining_class == 0 && p.decomp_seqindex == kNone && p.comb_index == kNone && !is_hangul(code);
}

// Appends the NFC of well-formed `text`. utf8proc reorders marks by exchanging neighbours, which is
// quadratic, so the order is made here and utf8proc only decomposes and composes.
void append_nfc(std::string_view text, std::string* out) {
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    utf8proc_int32_t parts[32];  // no canonical decomposition is longer than 4
    const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), parts, 32,
                                                       UTF8PROC_DECOMPOSE, nullptr);
    CHECK(n > 0 && n <= 32);
    codes.insert(codes.end(), parts, parts + n);
    pos += c.length;
  }
  const auto ccc = [](utf8proc_int32_t code) { return utf8proc_get_property(code)->combining_class; };
  for (auto begin = codes.begin(); begin != codes.end();) {
    if (ccc(*begin) == 0) {
      ++begin;
      continue;
    }
    const auto end = std::find_if(begin, codes.end(), [&](auto code) { return ccc(code) == 0; });
    std::stable_sort(begin, end, [&](auto a, auto b) { return ccc(a) < ccc(b); });
    begin = end;
  }
  const utf8proc_ssize_t n =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                               static_cast<utf8proc_option_t>(UTF8PROC_COMPOSE | UTF8PROC_STABLE));
  CHECK(n >= 0);
  for (utf8proc_ssize_t i = 0; i < n; ++i)
    append_utf8(static_cast<char32_t>(codes[static_cast<size_t>(i)]), out);
}

// Where the stretch of characters that may interact with each other ends; *changeable tells whether it can
// differ from its NFC at all.
size_t end_of_stretch(std::string_view text, size_t pos, bool* changeable) {
  *changeable = false;
  while (pos < text.size()) {
    const Utf8Char c = decode_utf8(text, pos);
    if (!c.valid() || is_inert(c.code)) break;
    *changeable |= c.code >= kFirstMark;
    pos += c.length;
  }
  return pos;
}

bool surely_nfc(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
}

}  // namespace

std::string_view to_nfc(std::string_view text, std::string* buffer) {
  if (surely_nfc(text)) return text;
  buffer->clear();
  for (size_t pos = 0; pos < text.size();) {
    bool changeable = false;
    const size_t end = end_of_stretch(text, pos, &changeable);
    if (changeable) {
      append_nfc(text.substr(pos, end - pos), buffer);
    } else {
      buffer->append(text.substr(pos, end - pos));
    }
    pos = end;
    if (pos == text.size()) break;
    const size_t length = decode_utf8(text, pos).length;
    buffer->append(text.substr(pos, length));
    pos += length;
  }
  return *buffer;
}

}  // namespace kvasir
