#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kvasir {

// What stands at one place of a byte string.
struct Utf8Char {
  enum class State : uint8_t {
    kValid,    // one well-formed character
    kInvalid,  // bytes that no continuation can make valid: the "maximal subpart" of Unicode 15, section 3.9
    kIncomplete,  // the text ends inside a character that is well-formed so far
  };
  char32_t code = U'\uFFFD';  // the replacement character unless valid
  uint8_t length = 1;         // bytes covered, at least 1
  State state = State::kInvalid;

  bool valid() const { return state == State::kValid; }
};

inline constexpr std::string_view kReplacementUtf8 = "\xEF\xBF\xBD";

// Reads the character at text[pos]; pos < text.size(). Surrogates, overlong forms and values above U+10FFFF
// are invalid. Replacing every invalid or (at the end) incomplete stretch by U+FFFD equals Python's
// errors="replace".
Utf8Char decode_utf8(std::string_view text, size_t pos);

// Appends `code`, a Unicode scalar value, to *out.
void append_utf8(char32_t code, std::string* out);

// The text with everything ill-formed replaced by U+FFFD.
std::string to_valid_utf8(std::string_view text);

}  // namespace kvasir
