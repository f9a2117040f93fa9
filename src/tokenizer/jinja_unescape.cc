#include "tokenizer/jinja_unescape.h"

#include <charconv>

#include "tokenizer/utf8.h"

namespace kvasir::jinja {
namespace {

// Reads exactly `count` hexadecimal digits.
std::optional<uint32_t> read_hex(std::string_view text, size_t pos, size_t count) {
  if (pos + count > text.size()) return std::nullopt;
  uint32_t value = 0;
  const char* end = text.data() + pos + count;
  const auto r = std::from_chars(text.data() + pos, end, value, 16);
  if (r.ec != std::errc() || r.ptr != end) return std::nullopt;
  return value;
}

bool is_high(uint32_t c) {
  return c >= 0xd800 && c < 0xdc00;
}
bool is_low(uint32_t c) {
  return c >= 0xdc00 && c < 0xe000;
}

// \xNN, \uNNNN or \UNNNNNNNN whose letter is at `pos`. Two escaped surrogates make one character, a lone one
// U+FFFD.
bool append_hex_escape(std::string_view body, size_t& pos, std::string& out) {
  const size_t count = body[pos] == 'x' ? 2 : body[pos] == 'u' ? 4 : 8;
  auto code = read_hex(body, pos + 1, count);
  if (!code || *code > 0x10ffff) return false;
  pos += 1 + count;
  if (is_high(*code) && body.substr(pos).starts_with("\\u")) {
    if (const auto low = read_hex(body, pos + 2, 4); low && is_low(*low)) {
      code = 0x10000 + ((*code - 0xd800) << 10) + (*low - 0xdc00);
      pos += 6;
    }
  }
  if (is_high(*code) || is_low(*code)) code = 0xfffd;
  append_utf8(*code, &out);
  return true;
}

void append_octal_escape(std::string_view body, size_t& pos, std::string& out) {
  uint32_t code = 0;
  for (size_t n = 0; n < 3 && pos < body.size() && body[pos] >= '0' && body[pos] <= '7'; ++n)
    code = code * 8 + static_cast<uint32_t>(body[pos++] - '0');
  append_utf8(code, &out);
}

}  // namespace

std::optional<std::string> unescape(std::string_view body) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv", kValues = "\\'\"\a\b\f\n\r\t\v";
  std::string out;
  for (size_t pos = 0; pos < body.size();) {
    if (body[pos] != '\\') {
      out += body[pos++];
      continue;
    }
    if (++pos >= body.size()) return std::nullopt;
    const char c = body[pos];
    if (const size_t at = kLetters.find(c); at != kLetters.npos) {
      out += kValues[at];
      ++pos;
    } else if (c == '\n') {
      ++pos;
    } else if (c == 'x' || c == 'u' || c == 'U') {
      if (!append_hex_escape(body, pos, out)) return std::nullopt;
    } else if (c >= '0' && c <= '7') {
      append_octal_escape(body, pos, out);
    } else {
      out += '\\';
    }
  }
  return out;
}

}  // namespace kvasir::jinja
