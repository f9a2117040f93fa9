#include "tokenizer/utf8.h"

namespace kvasir {
namespace {

// The lead byte fixes how many continuation bytes follow and in what range the first of them lies (Unicode
// 15, table 3-7); the others lie in 80..BF.
struct Lead {
  int continuations = -1;  // -1: not a lead byte
  uint8_t low = 0x80, high = 0xBF;
};

Lead classify_lead(uint8_t byte) {
  if (byte < 0x80) return {0};
  if (byte < 0xC2) return {};
  if (byte < 0xE0) return {1};
  if (byte == 0xE0) return {2, 0xA0, 0xBF};
  if (byte == 0xED) return {2, 0x80, 0x9F};
  if (byte < 0xF0) return {2};
  if (byte == 0xF0) return {3, 0x90, 0xBF};
  if (byte < 0xF4) return {3};
  if (byte == 0xF4) return {3, 0x80, 0x8F};
  return {};
}

}  // namespace

Utf8Char decode_utf8(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t first = byte(pos);
  const Lead lead = classify_lead(first);
  Utf8Char result;
  if (lead.continuations < 0) return result;
  char32_t code = lead.continuations == 0 ? first : first & (0x3Fu >> lead.continuations);
  for (int i = 1; i <= lead.continuations; ++i) {
    const size_t at = pos + static_cast<size_t>(i);
    if (at == text.size()) {
      result.length = static_cast<uint8_t>(i);
      result.state = Utf8Char::State::kIncomplete;
      return result;
    }
    const uint8_t low = i == 1 ? lead.low : 0x80;
    const uint8_t high = i == 1 ? lead.high : 0xBF;
    if (byte(at) < low || byte(at) > high) {
      result.length = static_cast<uint8_t>(i);
      return result;
    }
    code = (code << 6) | (byte(at) & 0x3Fu);
  }
  result.code = code;
  result.length = static_cast<uint8_t>(lead.continuations + 1);
  result.state = Utf8Char::State::kValid;
  return result;
}

void append_utf8(char32_t code, std::string* out) {
  const auto put = [out](char32_t byte) { out->push_back(static_cast<char>(static_cast<uint8_t>(byte))); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t pos = 0; pos < text.size();) {
    const Utf8Char c = decode_utf8(text, pos);
    out += c.valid() ? text.substr(pos, c.length) : kReplacementUtf8;
    pos += c.length;
  }
  return out;
}

}  // namespace kvasir
