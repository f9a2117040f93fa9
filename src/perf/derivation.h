#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace kvasir {

// What a symbol of a formula stands for: a number of its own, or another quantity of the derivation.
struct QuantityInput {
  std::string symbol = {};  // as the formula writes it: "K"
  std::string title = {};   // "KV heads"
  double value = 0;
  std::string unit = {};      // "" for a pure number
  std::string quantity = {};  // the id of the quantity whose value it is; "" for a number of its own
};

// A number of its own, and another quantity.
QuantityInput given(std::string symbol, std::string title, double value, std::string unit = "");
QuantityInput of(std::string symbol, std::string quantity);

// One number of a report, with how it came about.
struct Quantity {
  std::string id = {};       // "kv_bytes_per_sequence"
  std::string title = {};    // "KV cache of one sequence"
  double value = 0;          // what the function of perf/formulas.h returned
  std::string unit = {};     // "bytes", "s", "tokens/s", "" ...
  std::string formula = {};  // "2 * K * H * S * L * e": numbers, symbols, + - * / ^, parentheses, and the
                             // functions min, max, floor and ceil with arguments separated by ", "
  std::vector<QuantityInput> inputs = {};  // every symbol of the formula, once
  std::string source = {};                 // where the formula comes from
};

// The quantities of a report in the order in which they were derived; each depends only on earlier ones. A
// report prints value() and nothing else, so that what it shows and what --explain derives is one number.
// Adding a quantity whose formula names a symbol that is no input, whose input names a quantity that is not
// there yet, or whose id is taken, is a fault of the program (CHECK).
class Derivation {
 public:
  // Fills the values, and the titles and units where empty, of inputs that are quantities. The reference
  // stays good.
  const Quantity& add(Quantity quantity);

  const std::deque<Quantity>& quantities() const { return quantities_; }
  // nullptr when there is none.
  const Quantity* find(std::string_view id) const;
  // Of a quantity that is there.
  double value(std::string_view id) const;

  // One quantity as lines of text:
  //   KV cache of one sequence = 2 * K * H * S * L * e
  //     = 2 * 32 * 128 * 4,096 * 32 * 2
  //     = 2,147,483,648 bytes
  //     K  KV heads                 32
  //     ...
  //     source: ...
  // and, when `recursive`, under it every quantity that it depends on, each once, nearest first, indented by
  // two more.
  // kNotFound suggests the nearest ids.
  Result<std::string> explain(std::string_view id, bool recursive) const;

 private:
  std::deque<Quantity> quantities_;
};

// A number as derivations show it: whole ones, and those from a million to 2^53 rounded to whole, in full
// with groups of three ("4,096"), others with six significant digits ("0.00802078").
std::string number_text(double value);

// The formula with every symbol replaced by the number_text() of its value; a negative number in parentheses.
std::string substituted(const Quantity& quantity);

// The value of a formula's text, or of a substituted one, in which the inputs stand for their values.
// kCorrupt says what is wrong and where. For the tests that compare a report's quantities with what their
// text says.
Result<double> evaluate(std::string_view formula, const std::vector<QuantityInput>& inputs);

}  // namespace kvasir
