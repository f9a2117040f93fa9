#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "tokenizer/char_class.h"
#include "tokenizer/utf8.h"

namespace kvasir {

// What stands at a byte of a text, as pre-tokenisers see it. At the end of the text `end` is that byte itself
// and the class 0, which is in no set; bytes that are not UTF-8 are symbols, each alone.
struct TextChar {
  size_t end = 0;
  uint16_t cls = 0;
  char32_t code = 0;
};

inline TextChar read_char(std::string_view text, size_t pos) {
  if (pos >= text.size()) return {pos, 0, 0};
  const auto byte = static_cast<unsigned char>(text[pos]);
  if (byte < 0x80) return {pos + 1, char_class(byte), byte};
  const Utf8Char c = decode_utf8(text, pos);
  if (!c.valid()) return {pos + 1, kRest | kSymbol, c.code};
  return {pos + c.length, char_class(c.code), c.code};
}

}  // namespace kvasir
