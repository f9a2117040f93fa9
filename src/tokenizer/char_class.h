#pragma once

#include <cstdint>

namespace kvasir {

// Classes of code points that pre-tokenisers tell apart, as bits. Every code point has exactly one of
// kLetter, kMark, kNumber, kSpace and kRest; the others come on top.
enum CharClass : uint16_t {
  kLetter = 1 << 0,   // \p{L}
  kMark = 1 << 1,     // \p{M}
  kNumber = 1 << 2,   // \p{N}
  kSpace = 1 << 3,    // White_Space, which is what \s means in Oniguruma
  kRest = 1 << 4,     // none of the above: symbols, and what has no look of its own
  kNewline = 1 << 5,  // \r \n
  kSlash = 1 << 6,    // /
  kUpper = 1 << 7,    // \p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}: what may stand in a word's capitals
  kLower = 1 << 8,    // \p{Ll}\p{Lm}\p{Lo}\p{M}: what may stand in a word's small letters
  kSymbol = 1 << 9,   // \p{P}\p{S}
};

uint16_t char_class(char32_t code);

}  // namespace kvasir
