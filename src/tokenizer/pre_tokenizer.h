#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir {

// How text is cut into the pieces inside which byte-level BPE merges: the regular expression of a model's
// tokenizer.json, as a scanner without backtracking, so that time is linear and nothing can overflow.
//
// Every rule set is one of five shapes (\s is White_Space, M stands for \p{M} where word_mark is set):
//   kSpaced  'contraction| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+                      (GPT-2)
//   kPrefixed 'contraction|[^\r\n\p{L}\p{N}]?[\p{L}M]+|\p{N}{1,max_digits}
//             | ?[^\s\p{L}M\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+                                (cl100k and
//             children)
//   kCased    the same with words cut where case changes, and contractions at the end of words    (o200k)
//   kDeepSeekLlm, kDeepSeekV3: several expressions, each within the pieces of the one before
//             (deepseek_pieces.h)
struct PreTokenizer {
  enum class Words : uint8_t { kSpaced, kPrefixed, kCased, kDeepSeekLlm, kDeepSeekV3 };
  enum class Contractions : uint8_t { kNone, kLowercase, kAnyCase };

  std::string_view name;  // value of tokenizer.ggml.pre
  Words words = Words::kSpaced;
  Contractions contractions = Contractions::kLowercase;
  uint8_t max_digits = 0;        // kPrefixed, kCased: digits in one piece
  bool isolate_numbers = false;  // every \p{N} is a piece of its own, cut out before anything else
  bool word_mark = false;        // marks belong to words
  bool tail_slash = false;       // punctuation takes '/' along with the newlines behind it
  bool nfc = false;              // the tokenizer normalises to NFC first
  bool ignore_merges = false;    // a piece that is a token is that token, whatever the merges say
  bool add_bos = false;          // when the file does not say

  // The end of the piece that begins at text[pos]; pos < text.size(), the result is greater than pos. Bytes
  // that are not UTF-8 count as symbols.
  size_t next(std::string_view text, size_t pos) const;
};

// The rules for a value of tokenizer.ggml.pre; unsupported() naming it, and what is known, when there are
// none.
Result<const PreTokenizer*> find_pre_tokenizer(const std::string& name);

}  // namespace kvasir
