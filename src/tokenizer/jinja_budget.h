#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace kvasir::jinja {

// Why a template could not be parsed or rendered. Thrown inside the template engine only: ChatTemplate
// catches it and returns a Status.
struct Error {
  std::string message;
  int line = 0;  // of the template, 0 when not known
};

[[noreturn]] inline void fail(std::string message) {
  throw Error{std::move(message), 0};
}

// The work a rendering may still do. Everything whose cost a template can choose is charged before it is
// done: a step for an evaluation or a value, and one for each kBytesPerStep bytes produced or searched. So
// time and memory are bounded by the steps, whatever the template does.
class Budget {
 public:
  Budget(uint64_t steps, size_t max_output_bytes)
      : steps_(steps), left_(steps), max_output_(max_output_bytes) {}

  void step(uint64_t n = 1) {
    if (n > left_) fail("the template takes more than its budget of " + std::to_string(steps_) + " steps");
    left_ -= n;
  }
  void bytes(size_t n) { step(1 + n / kBytesPerStep); }
  void values(size_t n) { step(1 + n / kValuesPerStep); }
  void check_output(size_t size) const {
    if (size > max_output_)
      fail("the template's output is longer than " + std::to_string(max_output_) + " bytes");
  }

 private:
  static constexpr size_t kBytesPerStep = 64, kValuesPerStep = 2;
  uint64_t steps_, left_;
  size_t max_output_;
};

}  // namespace kvasir::jinja
