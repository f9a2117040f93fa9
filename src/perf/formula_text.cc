// Formulas as text: numbers, symbols and the value of both.
#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "perf/derivation.h"

namespace kvasir {
namespace {

bool starts_symbol(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

bool in_symbol(char c) {
  return starts_symbol(c) || (c >= '0' && c <= '9') || c == '_';
}

std::string_view symbol_at(std::string_view text, size_t at) {
  size_t end = at;
  while (end < text.size() && in_symbol(text[end])) ++end;
  return text.substr(at, end - at);
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The end of the number at `at`: digits in groups of three with commas or plain, a fraction, an exponent.
size_t number_end(std::string_view text, size_t at) {
  size_t i = at;
  const auto digits = [&] {
    while (i < text.size() && is_digit(text[i])) ++i;
  };
  digits();
  while (i + 3 < text.size() && text[i] == ',' && is_digit(text[i + 1]) && is_digit(text[i + 2]) &&
         is_digit(text[i + 3]))
    i += 4;
  if (i < text.size() && text[i] == '.') {
    ++i;
    digits();
  }
  if (i + 1 < text.size() && text[i] == 'e' &&
      (is_digit(text[i + 1]) || text[i + 1] == '-' || text[i + 1] == '+')) {
    i += 2;
    digits();
  }
  return i;
}

// Recursive descent over
//   sum = product {(+|-) product}     product = power {(*|/) power}     power = - power | atom [^ power]
//   atom = number | symbol | function "(" sum {", " sum} ")" | "(" sum ")"
class Parser {
 public:
  Parser(std::string_view text, const std::vector<QuantityInput>& inputs) : text_(text), inputs_(inputs) {}

  Result<double> parse() {
    const double value = sum();
    skip();
    if (at_ != text_.size()) fail("something that does not belong there");
    if (!error_.ok()) return error_;
    return value;
  }

 private:
  static constexpr int kMostDepth = 64;

  void fail(std::string_view what) {
    if (error_.ok()) error_ = corrupt(fmt::format("formula '{}', character {}: {}", text_, at_ + 1, what));
    at_ = text_.size();
  }
  void skip() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }

  double sum() {
    double value = product();
    while (true) {
      if (take('+'))
        value += product();
      else if (take('-'))
        value -= product();
      else
        return value;
    }
  }
  double product() {
    double value = power();
    while (true) {
      if (take('*'))
        value *= power();
      else if (take('/'))
        value /= power();
      else
        return value;
    }
  }
  double power() {
    if (++depth_ > kMostDepth) return fail("nested too deep"), 0;
    double value = 0;
    if (take('-')) {
      value = -power();
    } else {
      value = atom();
      if (take('^')) value = std::pow(value, power());
    }
    --depth_;
    return value;
  }
  double atom() {
    skip();
    double value = 0;
    if (at_ >= text_.size())
      fail("it ends where a number should be");
    else if (take('('))
      value = closed(sum());
    else if (is_digit(text_[at_]))
      value = number();
    else if (starts_symbol(text_[at_]))
      value = named();
    else
      fail("neither a number nor a symbol");
    return value;
  }
  double closed(double value) {
    if (!take(')')) fail("a ')' is missing");
    return value;
  }
  double number() {
    const size_t end = number_end(text_, at_);
    std::string plain(text_.substr(at_, end - at_));
    std::erase(plain, ',');
    at_ = end;
    double value = 0;
    std::from_chars(plain.data(), plain.data() + plain.size(), value);
    return value;
  }
  double named() {
    const std::string_view name = symbol_at(text_, at_);
    at_ += name.size();
    if (take('(')) return call(name);
    for (const QuantityInput& input : inputs_)
      if (input.symbol == name) return input.value;
    return fail(fmt::format("the symbol '{}' stands for nothing", name)), 0;
  }
  double call(std::string_view name) {
    std::vector<double> arguments = {sum()};
    while (take(',')) arguments.push_back(sum());
    closed(0);
    if (name == "min") return *std::min_element(arguments.begin(), arguments.end());
    if (name == "max") return *std::max_element(arguments.begin(), arguments.end());
    if (arguments.size() != 1) return fail(fmt::format("{}() takes one argument", name)), 0;
    if (name == "floor") return std::floor(arguments[0]);
    if (name == "ceil") return std::ceil(arguments[0]);
    return fail(fmt::format("there is no function '{}'", name)), 0;
  }

  std::string_view text_;
  const std::vector<QuantityInput>& inputs_;
  size_t at_ = 0;
  int depth_ = 0;
  Status error_;
};

std::string grouped(double whole) {
  std::string digits = fmt::format("{:.0f}", std::fabs(whole));
  for (size_t i = digits.size(); i > 3; i -= 3) digits.insert(i - 3, 1, ',');
  return whole < 0 ? fmt::format("-{}", digits) : digits;
}

}  // namespace

std::string number_text(double value) {
  constexpr double kExact = 9007199254740992.0;  // 2^53
  constexpr double kLarge = 1e6;                 // from here on a fraction is beyond the sixth digit
  const double size = std::fabs(value);
  if (size < kExact && (size >= kLarge || value == std::floor(value))) return grouped(value);
  return fmt::format("{:.6g}", value);
}

std::string substituted(const Quantity& quantity) {
  const std::string_view text = quantity.formula;
  std::string out;
  for (size_t i = 0; i < text.size();) {
    if (is_digit(text[i])) {
      const size_t end = number_end(text, i);
      out += text.substr(i, end - i);
      i = end;
    } else if (starts_symbol(text[i])) {
      const std::string_view name = symbol_at(text, i);
      const auto input = std::find_if(quantity.inputs.begin(), quantity.inputs.end(),
                                      [&](const QuantityInput& q) { return q.symbol == name; });
      if (input == quantity.inputs.end())
        out += name;
      else
        out += input->value < 0 ? fmt::format("({})", number_text(input->value)) : number_text(input->value);
      i += name.size();
    } else {
      out += text[i++];
    }
  }
  return out;
}

Result<double> evaluate(std::string_view formula, const std::vector<QuantityInput>& inputs) {
  return Parser(formula, inputs).parse();
}

}  // namespace kvasir
