#include "tokenizer/deepseek_pieces.h"

#include <algorithm>
#include <cstdint>
#include <iterator>

#include "tokenizer/text_char.h"

namespace kvasir {
namespace {

struct Range {
  char32_t first, last;
};

// clang-format off
constexpr Range kCasedLetters[] = {
    {0x0041, 0x005A}, {0x0061, 0x007A}, {0x00B5, 0x00B5}, {0x00C0, 0x00D6}, {0x00D8, 0x00F6},
    {0x00F8, 0x01BA}, {0x01BC, 0x01BF}, {0x01C4, 0x0293}, {0x0295, 0x02AF}, {0x0370, 0x0373},
    {0x0376, 0x0376}, {0x0377, 0x0377}, {0x037B, 0x037D}, {0x037F, 0x037F}, {0x0386, 0x0386},
    {0x0388, 0x038A}, {0x038C, 0x038C}, {0x038E, 0x03A1}, {0x03A3, 0x03F5}, {0x03F7, 0x0481},
    {0x048A, 0x052F}, {0x0531, 0x0556}, {0x10A0, 0x10C5}, {0x13A0, 0x13F5}, {0x13F8, 0x13FD},
    {0x1C90, 0x1CBA}, {0x1CBD, 0x1CBF}, {0x1D00, 0x1D2B}, {0x1D6B, 0x1D77}, {0x1D79, 0x1D9A},
    {0x1E00, 0x1F15}, {0x1F18, 0x1F1D}, {0x1F20, 0x1F45}, {0x1F48, 0x1F4D}, {0x1F50, 0x1F57},
    {0x1F59, 0x1F59}, {0x1F5B, 0x1F5B}, {0x1F5D, 0x1F5D}, {0x1F5F, 0x1F7D}, {0x1F80, 0x1FB4},
    {0x1FB6, 0x1FBC}, {0x1FBE, 0x1FBE}, {0x1FC2, 0x1FC4}, {0x1FC6, 0x1FCC}, {0x1FD0, 0x1FD3},
    {0x1FD6, 0x1FDB}, {0x1FE0, 0x1FEC}, {0x1FF2, 0x1FF4}, {0x1FF6, 0x1FFC}, {0x2102, 0x2102},
    {0x2107, 0x2107}, {0x210A, 0x2113}, {0x2115, 0x2115}, {0x2119, 0x211D}, {0x2124, 0x2124},
    {0x2126, 0x2126}, {0x2128, 0x2128}, {0x212A, 0x212D}, {0x212F, 0x2134}, {0x2139, 0x2139},
    {0x213C, 0x213F}, {0x2145, 0x2149}, {0x214E, 0x214E}, {0x2183, 0x2183}, {0x2184, 0x2184},
    {0x2C00, 0x2C7B}, {0x2C7E, 0x2CE4}, {0x2CEB, 0x2CEE}, {0x2CF2, 0x2CF2}, {0x2CF3, 0x2CF3},
    {0xA640, 0xA66D}, {0xA680, 0xA69B}, {0xA722, 0xA76F}, {0xA771, 0xA787}, {0xA78B, 0xA78E},
    {0xAB70, 0xABBF}, {0xFB00, 0xFB06}, {0xFB13, 0xFB17}, {0xFF21, 0xFF3A}, {0xFF41, 0xFF5A},
    {0x10400, 0x1044F}, {0x104B0, 0x104D3}, {0x104D8, 0x104FB}, {0x10C80, 0x10CB2}, {0x10CC0, 0x10CF2},
    {0x118A0, 0x118DF}, {0x1E900, 0x1E943},
};
// clang-format on

bool is_cased_letter(char32_t code) {
  if (code < 0x80) return (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z');
  const auto* after = std::upper_bound(std::begin(kCasedLetters), std::end(kCasedLetters), code,
                                       [](char32_t c, const Range& range) { return c < range.first; });
  return code <= std::prev(after)->last;
}

bool is_within(char32_t code, char32_t first, char32_t last) {
  return code >= first && code <= last;
}

// Digits are in neither range.
bool is_symbol_or_ascii_letter(char32_t code) {
  return is_within(code, '!', '/') || is_within(code, ':', '~') || is_within(code, 0xFF01, 0xFF0F) ||
         is_within(code, 0xFF1A, 0xFF5E) || is_within(code, 0x2018, 0x201F) ||
         is_within(code, 0x3000, 0x3002);
}

bool is_east_of_nko(char32_t code) {
  return is_within(code, 0x0800, 0x9FA5) || is_within(code, 0xAC00, 0xD7FF);
}

// Whether two neighbours are in different pieces, which a few characters behind them settle.
class LlmCuts {
 public:
  explicit LlmCuts(std::string_view text) : text_(text) {}

  bool between(const TextChar& a, const TextChar& b) const {
    if (((a.cls | b.cls) & (kNewline | kNumber)) != 0) return true;
    return is_east_of_nko(a.code) != is_east_of_nko(b.code) || of_matches(a, b) || before_last_spaces(a, b);
  }

 private:
  static bool is_space(const TextChar& c) { return (c.cls & kSpace) != 0 && (c.cls & kNewline) == 0; }
  static bool is_letter(const TextChar& c) { return c.cls != 0 && is_cased_letter(c.code); }
  static bool is_symbol(const TextChar& c) { return c.cls != 0 && is_symbol_or_ascii_letter(c.code); }
  TextChar behind(const TextChar& c) const { return read_char(text_, c.end); }

  // \s?[letters]+
  bool of_letters(const TextChar& a, const TextChar& b) const {
    if (is_letter(a) != is_letter(b)) return is_letter(a) || !is_space(a);
    return is_space(b) && is_letter(behind(b));
  }

  // The same and, within its pieces, \s?[symbols]+.
  bool of_matches(const TextChar& a, const TextChar& b) const {
    if (of_letters(a, b)) return true;
    if (is_symbol(a) != is_symbol(b)) return is_symbol(a) || !is_space(a);
    if (is_symbol(a) || !is_space(b)) return false;
    const TextChar c = behind(b);
    return is_symbol(c) && !of_letters(b, c);
  }

  // \s+$ within their pieces: whether b begins the spaces that end a piece.
  bool before_last_spaces(const TextChar& a, TextChar b) const {
    if (is_space(a) || !is_space(b)) return false;
    for (TextChar c = behind(b);; b = c, c = behind(b)) {
      if (c.cls == 0 || (c.cls & kNewline) != 0 || of_matches(b, c)) return true;
      if (!is_space(c)) return false;
    }
  }

  std::string_view text_;
};

bool is_ascii_letter(const TextChar& c) {
  return c.code < 0x80 && (c.cls & kLetter) != 0;
}

bool is_kana_or_han(char32_t code) {
  return is_within(code, 0x3040, 0x30FF) || is_within(code, 0x4E00, 0x9FA5);
}

class V3Scan {
 public:
  explicit V3Scan(std::string_view text) : text_(text) {}

  size_t piece(size_t pos) const {
    TextChar c = read_char(text_, pos);
    size_t end = pos;
    for (int n = 0; n < 3 && (c.cls & kNumber) != 0; ++n, c = read_char(text_, end)) end = c.end;
    if (end > pos) return end;
    for (; is_kana_or_han(c.code); c = read_char(text_, end)) end = c.end;
    if (end > pos) return end;
    if (const size_t matched = match(pos); matched > pos) return matched;
    for (end = c.end; at(end).cls != 0 && match(end) == end;) end = at(end).end;
    return end;
  }

 private:
  // Numbers, kana and Han are cut out beforehand: for the third expression the text ends there.
  TextChar at(size_t pos) const {
    const TextChar c = read_char(text_, pos);
    return (c.cls & kNumber) != 0 || is_kana_or_han(c.code) ? TextChar{pos, 0, 0} : c;
  }

  size_t run(size_t pos, uint16_t mask) const {
    for (TextChar c = at(pos); (c.cls & mask) != 0; c = at(pos)) pos = c.end;
    return pos;
  }

  // The end of what the third expression matches at pos, or pos.
  size_t match(size_t pos) const {
    constexpr uint16_t kWord = kLetter | kMark;
    const TextChar c = at(pos), next = at(c.end);
    if (c.cls == 0) return pos;
    if (c.code < 0x80 && (c.cls & kSymbol) != 0 && is_ascii_letter(next)) {
      size_t end = next.end;
      for (TextChar letter = at(end); is_ascii_letter(letter); letter = at(end)) end = letter.end;
      return end;
    }
    if ((c.cls & kWord) != 0) return run(pos, kWord);
    if ((c.cls & (kNewline | kSymbol)) == 0 && (next.cls & kWord) != 0) return run(c.end, kWord);
    const size_t start = c.code == ' ' ? c.end : pos;
    if ((at(start).cls & kSymbol) != 0) return run(run(start, kSymbol), kNewline);
    return whitespace(pos);
  }

  // \s*[\r\n]+, \s+(?!\S), \s+
  size_t whitespace(size_t pos) const {
    size_t end = pos, last = pos, newline_end = pos;
    for (TextChar c = at(end); (c.cls & kSpace) != 0; c = at(end)) {
      last = end;
      end = c.end;
      if ((c.cls & kNewline) != 0) newline_end = end;
    }
    if (newline_end > pos) return newline_end;
    return at(end).cls == 0 || last == pos ? end : last;
  }

  std::string_view text_;
};

}  // namespace

size_t deepseek_llm_piece(std::string_view text, size_t pos) {
  const LlmCuts cuts(text);
  TextChar a = read_char(text, pos);
  for (TextChar b = read_char(text, a.end); b.cls != 0; b = read_char(text, a.end)) {
    if (cuts.between(a, b)) return a.end;
    a = b;
  }
  return a.end;
}

size_t deepseek_v3_piece(std::string_view text, size_t pos) {
  return V3Scan(text).piece(pos);
}

}  // namespace kvasir
