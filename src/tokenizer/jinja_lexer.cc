#include "tokenizer/jinja_lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <charconv>
#include <optional>

#include "tokenizer/jinja_budget.h"
#include "tokenizer/jinja_unescape.h"
#include "tokenizer/jinja_unicode.h"

namespace kvasir::jinja {
namespace {

// Line ends become \n, and one at the very end goes.
std::string normalise_lines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      out += source[i];
    }
  }
  if (out.ends_with('\n')) out.pop_back();
  return out;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool starts_name(char c) {
  return c == '_' || std::isalpha(static_cast<unsigned char>(c)) || (c & 0x80);
}
bool continues_name(char c) {
  return starts_name(c) || is_digit(c);
}

class Lexer {
 public:
  explicit Lexer(std::string_view source) : source_(normalise_lines(source)), rest_(source_) {}

  std::vector<Token> run() {
    while (pos_ < source_.size()) root();
    emit(Token::Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void error(std::string message) { throw Error{std::move(message), line_}; }

  bool at(std::string_view s) const { return rest_.substr(pos_).starts_with(s); }

  // Moves on, counting lines, and remembers whether the piece ended one.
  void advance(size_t n) {
    line_ += static_cast<int>(std::count(rest_.begin() + static_cast<std::ptrdiff_t>(pos_),
                                         rest_.begin() + static_cast<std::ptrdiff_t>(pos_ + n), '\n'));
    pos_ += n;
    line_starting_ = n > 0 && source_[pos_ - 1] == '\n';
  }

  Token& emit(Token::Kind kind, std::string text) {
    Token& t = tokens_.emplace_back();
    t.kind = kind;
    t.text = std::move(text);
    t.line = line_;
    return t;
  }

  // The text up to a tag that starts at `tag`, whose sign is `sign` ('-', '+' or 0), as white-space control
  // leaves it.
  std::string_view controlled(size_t tag, char sign, bool is_variable) {
    std::string_view data = rest_.substr(pos_, tag - pos_);
    if (sign == '-') return data.substr(0, rstrip_end(data));
    if (sign == '+' || is_variable) return data;
    const size_t newline = data.rfind('\n');
    const size_t line_start = newline == data.npos ? 0 : newline + 1;
    if ((line_start > 0 || line_starting_) && skip_space(data, line_start) == data.size())
      return data.substr(0, line_start);
    return data;
  }

  char sign_at(size_t pos) const {
    return pos < source_.size() && (source_[pos] == '-' || source_[pos] == '+') ? source_[pos] : '\0';
  }

  void data(size_t tag, char sign, bool is_variable) {
    const std::string_view text = controlled(tag, sign, is_variable);
    if (!text.empty()) emit(Token::Kind::kData, std::string(text));
    advance(tag - pos_);
  }

  // From template text to the end of the next tag.
  void root() {
    size_t tag = pos_;
    while ((tag = rest_.find('{', tag)) != rest_.npos && tag + 1 < rest_.size() && rest_[tag + 1] != '{' &&
           rest_[tag + 1] != '%' && rest_[tag + 1] != '#')
      ++tag;
    if (tag == rest_.npos || tag + 1 >= rest_.size()) {
      emit(Token::Kind::kData, std::string(rest_.substr(pos_)));
      advance(source_.size() - pos_);
      return;
    }
    const char opener = rest_[tag + 1];
    const char sign = sign_at(tag + 2);
    data(tag, sign, opener == '{');
    if (opener == '#') return comment(sign);
    if (opener == '%')
      if (const auto body = raw_begin()) return raw(*body);
    emit(opener == '{' ? Token::Kind::kVariableBegin : Token::Kind::kBlockBegin, "");
    advance(sign ? 3 : 2);
    expression(opener == '{');
  }

  // After a tag's closing delimiter at pos_: "-" takes all white space, "+" nothing, else one line end.
  void close(char sign, size_t length, bool trims) {
    size_t end = pos_ + length;
    if (sign == '-')
      end = skip_space(rest_, end);
    else if (sign != '+' && trims && end < source_.size() && source_[end] == '\n')
      ++end;
    advance(end - pos_);
  }

  void comment(char sign) {
    const size_t body = pos_ + (sign ? 3 : 2);
    const size_t end = rest_.find("#}", body);
    if (end == rest_.npos) error("a comment is not closed");
    const char last = end > body ? sign_at(end - 1) : '\0';
    advance(end - pos_);
    close(last, 2, true);
  }

  // Where the body of a raw block starts, if one starts here: {%, a sign, "raw", -%} or %}.
  std::optional<size_t> raw_begin() const {
    size_t p = skip_space(rest_, pos_ + (sign_at(pos_ + 2) ? 3 : 2));
    if (!rest_.substr(p).starts_with("raw")) return std::nullopt;
    p = skip_space(rest_, p + 3);
    if (rest_.substr(p).starts_with("-%}")) return skip_space(rest_, p + 3);
    if (rest_.substr(p).starts_with("%}")) return p + 2;
    return std::nullopt;
  }

  void raw(size_t body) {
    advance(body - pos_);
    for (size_t tag = pos_; (tag = rest_.find("{%", tag)) != rest_.npos; ++tag) {
      const char sign = sign_at(tag + 2);
      size_t p = skip_space(rest_, tag + (sign ? 3 : 2));
      if (!rest_.substr(p).starts_with("endraw")) continue;
      p = skip_space(rest_, p + 6);
      const char last = sign_at(p);
      if (!rest_.substr(p + (last ? 1 : 0)).starts_with("%}")) continue;
      data(tag, sign, false);
      advance(p - pos_);
      return close(last, last ? 3 : 2, true);
    }
    error("a raw block is not closed");
  }

  // The tokens of {{ }} or {% %}, up to its end.
  void expression(bool is_variable) {
    std::string brackets;  // open ones; inside them the closing delimiter is just characters
    const std::string_view closer = is_variable ? "}}" : "%}";
    while (true) {
      advance(skip_space(rest_, pos_) - pos_);
      if (pos_ >= source_.size()) error(is_variable ? "{{ is not closed" : "{% is not closed");
      if (brackets.empty()) {
        const char sign = at("-") || (at("+") && !is_variable) ? source_[pos_] : '\0';
        if (rest_.substr(pos_ + (sign ? 1 : 0)).starts_with(closer)) {
          emit(is_variable ? Token::Kind::kVariableEnd : Token::Kind::kBlockEnd, "");
          return close(sign, sign ? 3 : 2, !is_variable);
        }
      }
      token(brackets);
    }
  }

  void token(std::string& brackets) {
    const char c = source_[pos_];
    if (is_digit(c)) return number();
    if (starts_name(c)) {
      size_t end = pos_ + 1;
      while (end < source_.size() && continues_name(source_[end])) ++end;
      emit(Token::Kind::kName, source_.substr(pos_, end - pos_));
      return advance(end - pos_);
    }
    if (c == '"' || c == '\'') return string(c);
    operation(brackets);
  }

  void string(char quote) {
    size_t end = pos_ + 1;
    while (end < source_.size() && source_[end] != quote) end += source_[end] == '\\' ? 2 : 1;
    if (end >= source_.size()) error("a string is not closed");
    auto value = unescape(rest_.substr(pos_ + 1, end - pos_ - 1));
    if (!value) error("a string holds a broken escape");
    emit(Token::Kind::kString, std::move(*value));
    advance(end + 1 - pos_);
  }

  void operation(std::string& brackets) {
    constexpr std::string_view kPairs[] = {"**", "//", "==", "!=", ">=", "<="};
    constexpr std::string_view kSingles = "+-/*%~[](){}><=.:|,;";
    for (std::string_view pair : kPairs)
      if (at(pair)) {
        emit(Token::Kind::kOperator, std::string(pair));
        return advance(2);
      }
    const char c = source_[pos_];
    if (kSingles.find(c) == kSingles.npos) error(fmt::format("unexpected character '{}'", c));
    constexpr std::string_view kOpen = "([{", kClose = ")]}";
    if (kOpen.find(c) != kOpen.npos) {
      brackets += c;
    } else if (const size_t which = kClose.find(c); which != kClose.npos) {
      if (brackets.empty() || brackets.back() != kOpen[which]) error(fmt::format("unexpected '{}'", c));
      brackets.pop_back();
    }
    emit(Token::Kind::kOperator, std::string(1, c));
    advance(1);
  }

  // The end of digits in which single underscores may stand between two.
  size_t digits_end(size_t p, int base = 10) const {
    const auto good = [&](size_t i) {
      return i < source_.size() && std::isxdigit(static_cast<unsigned char>(source_[i])) &&
             (base == 16 || source_[i] < '0' + std::min(base, 10));
    };
    while (good(p) || (p < source_.size() && source_[p] == '_' && good(p + 1))) ++p;
    return p;
  }

  std::string without_underscores(size_t begin, size_t end) const {
    std::string s = source_.substr(begin, end - begin);
    std::erase(s, '_');
    return s;
  }

  void number() {
    const size_t start = pos_;
    const char marker = start + 1 < source_.size() ? static_cast<char>(source_[start + 1] | 0x20) : '\0';
    const int base = source_[start] != '0' ? 10
                     : marker == 'x'       ? 16
                     : marker == 'o'       ? 8
                     : marker == 'b'       ? 2
                                           : 10;
    if (base != 10 && digits_end(start + 2, base) > start + 2)
      return integer(start + 2, digits_end(start + 2, base), base);
    size_t end = digits_end(start);
    const size_t whole = end;
    // After a dot ("x.0.1") digits are subscripts, never a float.
    if (start == 0 || source_[start - 1] != '.') {
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1]))
        end = digits_end(end + 1);
      if (end < source_.size() && (source_[end] | 0x20) == 'e') {
        const size_t digits = end + 1 + (sign_at(end + 1) ? 1 : 0);
        if (digits < source_.size() && is_digit(source_[digits])) end = digits_end(digits);
      }
    }
    if (end == whole) return integer(start, whole, 10);
    const std::string text = without_underscores(start, end);
    double value = 0.0;
    if (std::from_chars(text.data(), text.data() + text.size(), value).ec != std::errc())
      error("the number " + text + " is out of range");
    emit(Token::Kind::kFloat, "").number = value;
    advance(end - pos_);
  }

  void integer(size_t begin, size_t end, int base) {
    const std::string text = without_underscores(begin, end);
    int64_t value = 0;
    if (std::from_chars(text.data(), text.data() + text.size(), value, base).ec != std::errc())
      error("the number " + text + " is out of range");
    emit(Token::Kind::kInteger, "").integer = value;
    advance(end - pos_);
  }

  const std::string source_;
  const std::string_view rest_;  // of source_, whole
  size_t pos_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> tokenize_template(std::string_view source) {
  return Lexer(source).run();
}

}  // namespace kvasir::jinja
