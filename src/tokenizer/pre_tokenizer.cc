#include "tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include "tokenizer/char_class.h"
#include "tokenizer/deepseek_pieces.h"
#include "tokenizer/text_char.h"

namespace kvasir {
namespace {

using Words = PreTokenizer::Words;
using Contractions = PreTokenizer::Contractions;

// clang-format off
constexpr PreTokenizer kPreTokenizers[] = {
    {.name = "gpt-2"},
    {.name = "phi-2"},
    {.name = "olmo"},
    {.name = "smollm", .isolate_numbers = true},
    {.name = "starcoder", .isolate_numbers = true},
    {.name = "refact", .isolate_numbers = true},
    {.name = "command-r", .isolate_numbers = true, .nfc = true},
    {.name = "qwen2", .words = Words::kPrefixed, .contractions = Contractions::kAnyCase, .max_digits = 1, .nfc = true},
    {.name = "deepseek-r1-qwen", .words = Words::kPrefixed, .contractions = Contractions::kAnyCase, .max_digits = 1,
     .nfc = true},
    {.name = "stablelm2", .words = Words::kPrefixed, .contractions = Contractions::kAnyCase, .max_digits = 1,
     .nfc = true},
    {.name = "qwen35", .words = Words::kPrefixed, .contractions = Contractions::kAnyCase, .max_digits = 1,
     .word_mark = true, .nfc = true},
    {.name = "llama3", .words = Words::kPrefixed, .contractions = Contractions::kAnyCase, .max_digits = 3,
     .ignore_merges = true, .add_bos = true},
    {.name = "llama-v3", .words = Words::kPrefixed, .contractions = Contractions::kAnyCase, .max_digits = 3,
     .ignore_merges = true, .add_bos = true},
    {.name = "llama-bpe", .words = Words::kPrefixed, .contractions = Contractions::kAnyCase, .max_digits = 3,
     .ignore_merges = true, .add_bos = true},
    {.name = "dbrx", .words = Words::kPrefixed, .contractions = Contractions::kAnyCase, .max_digits = 3},
    {.name = "smaug-bpe", .words = Words::kPrefixed, .contractions = Contractions::kAnyCase, .max_digits = 3},
    {.name = "gpt-4o", .words = Words::kCased, .contractions = Contractions::kAnyCase, .max_digits = 3,
     .tail_slash = true},
    {.name = "tekken", .words = Words::kCased, .contractions = Contractions::kNone, .max_digits = 1,
     .tail_slash = true, .ignore_merges = true, .add_bos = true},
    {.name = "deepseek-llm", .words = Words::kDeepSeekLlm},
    {.name = "deepseek-v3", .words = Words::kDeepSeekV3},
};
// clang-format on

// One scan of one piece. Positions are byte offsets; a position at the end of the text has class 0, which is
// in no set, and so has a number when numbers are cut out beforehand: for the expression behind, the text
// ends there.
class Scan {
 public:
  Scan(const PreTokenizer& rules, std::string_view text) : rules_(rules), text_(text) {}

  size_t piece(size_t pos) const {
    if (rules_.isolate_numbers) {
      const Char c = read(pos);
      if (c.cls & kNumber) return c.end;
    }
    if (rules_.words != Words::kCased) {
      if (const size_t end = contraction(pos); end > pos) return end;
    }
    switch (rules_.words) {
      case Words::kSpaced:
        return spaced(pos);
      case Words::kPrefixed:
        if (const size_t end = prefixed_word(pos); end > pos) return end;
        return digits_or_symbols(pos);
      case Words::kCased:
        if (const size_t end = cased_word(pos); end > pos) return end;
        return digits_or_symbols(pos);
      case Words::kDeepSeekLlm:
      case Words::kDeepSeekV3:
        break;  // not by this scan
    }
    return read(pos).end;
  }

 private:
  using Char = TextChar;

  Char read(size_t pos) const { return read_char(text_, pos); }

  Char at(size_t pos) const {
    const Char c = read(pos);
    return rules_.isolate_numbers && (c.cls & kNumber) ? Char{pos, 0, 0} : c;
  }

  size_t run(size_t pos, uint16_t mask) const {
    for (Char c = at(pos); c.cls & mask; c = at(pos)) pos = c.end;
    return pos;
  }

  bool is_space_char(size_t pos) const { return text_[pos] == ' '; }
  uint16_t word_mask() const { return rules_.word_mark ? kLetter | kMark : kLetter; }
  uint16_t symbol_mask() const { return rules_.word_mark ? kRest : kRest | kMark; }

  // The letter behind an apostrophe, folded; the long s folds to s under (?i).
  char folded(size_t pos, size_t* end) const {
    *end = pos + 1;
    if (pos >= text_.size()) return 0;
    const char c = text_[pos];
    if (rules_.contractions == Contractions::kLowercase) return c;
    if (c >= 'A' && c <= 'Z') return static_cast<char>(c - 'A' + 'a');
    if (text_.substr(pos, 2) == "\xC5\xBF") {
      *end = pos + 2;
      return 's';
    }
    return c;
  }

  // 's 't 'm 'd 're 've 'll; pos when there is none.
  size_t contraction(size_t pos) const {
    if (rules_.contractions == Contractions::kNone || pos >= text_.size() || text_[pos] != '\'') return pos;
    size_t end = 0;
    const char first = folded(pos + 1, &end);
    if (first == 's' || first == 't' || first == 'm' || first == 'd') return end;
    const char second = first == 'r' || first == 'v' ? 'e' : first == 'l' ? 'l' : 0;
    return second != 0 && folded(end, &end) == second ? end : pos;
  }

  size_t spaced(size_t pos) const {
    const size_t start = is_space_char(pos) ? pos + 1 : pos;
    const uint16_t cls = at(start).cls;
    for (const uint16_t mask : {word_mask(), static_cast<uint16_t>(kNumber), symbol_mask()}) {
      if (cls & mask) return run(start, mask);
    }
    return whitespace(pos);
  }

  // [^\r\n\p{L}\p{N}]?
  size_t word_prefix(size_t pos) const {
    const Char c = at(pos);
    return c.cls != 0 && !(c.cls & (kNewline | kLetter | kNumber)) ? c.end : pos;
  }

  size_t prefixed_word(size_t pos) const {
    const uint16_t mask = word_mask();
    if (at(pos).cls & mask) return run(pos, mask);
    const size_t start = word_prefix(pos);
    return start > pos && (at(start).cls & mask) ? run(start, mask) : pos;
  }

  // prefix? upper* lower+ before prefix? upper+ lower*, each as a backtracking matcher would find it: the
  // prefix is tried first, and upper* gives back what lower+ needs.
  size_t cased_word(size_t pos) const {
    const size_t prefix = word_prefix(pos);
    for (const size_t start : {prefix, pos}) {
      if (const size_t end = ending_in_lower(start); end > start) return with_contraction(end);
    }
    for (const size_t start : {prefix, pos}) {
      if (const size_t end = run(start, kUpper); end > start) return with_contraction(end);
    }
    return pos;
  }

  // The end of upper* lower+ from `start`, or `start`.
  size_t ending_in_lower(size_t start) const {
    size_t pos = start, both_end = start;
    for (Char c = at(pos); c.cls & kUpper; c = at(pos)) {
      pos = c.end;
      if (c.cls & kLower) both_end = c.end;
    }
    const size_t end = run(pos, kLower);
    return end > pos ? end : both_end;
  }

  size_t with_contraction(size_t pos) const {
    return rules_.contractions == Contractions::kNone ? pos : contraction(pos);
  }

  size_t digits_or_symbols(size_t pos) const {
    size_t end = pos;
    Char c = at(end);
    for (int n = 0; n < rules_.max_digits && (c.cls & kNumber); ++n, c = at(end)) end = c.end;
    if (end > pos) return end;
    const size_t start = is_space_char(pos) ? pos + 1 : pos;
    if (at(start).cls & symbol_mask()) {
      const uint16_t tail = rules_.tail_slash ? kNewline | kSlash : kNewline;
      return run(run(start, symbol_mask()), tail);
    }
    return whitespace(pos);
  }

  // \s*[\r\n]+ (not in kSpaced), \s+(?!\S), \s+
  size_t whitespace(size_t pos) const {
    size_t end = pos, last = pos, newline_end = pos;
    for (Char c = at(end); c.cls & kSpace; c = at(end)) {
      last = end;
      end = c.end;
      if (c.cls & kNewline) newline_end = end;
    }
    if (rules_.words != Words::kSpaced && newline_end > pos) return newline_end;
    if (at(end).cls == 0 || last == pos) return end > pos ? end : read(pos).end;
    return last;
  }

  const PreTokenizer& rules_;
  std::string_view text_;
};

}  // namespace

size_t PreTokenizer::next(std::string_view text, size_t pos) const {
  if (words == Words::kDeepSeekLlm) return deepseek_llm_piece(text, pos);
  if (words == Words::kDeepSeekV3) return deepseek_v3_piece(text, pos);
  return Scan(*this, text).piece(pos);
}

Result<const PreTokenizer*> find_pre_tokenizer(const std::string& name) {
  std::string known;
  for (const PreTokenizer& rules : kPreTokenizers) {
    if (rules.name == name) return &rules;
    known += known.empty() ? "" : ", ";
    known += rules.name;
  }
  return unsupported(fmt::format("tokenizer.ggml.pre is '{}', which is not known (known: {})", name, known));
}

}  // namespace kvasir
