#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace kvasir {

// A JSON-like value handed to a chat template. Objects keep their insertion order, as Python's dicts do.
class TemplateValue {
 public:
  using Array = std::vector<TemplateValue>;
  using Object = std::vector<std::pair<std::string, TemplateValue>>;

  TemplateValue() = default;                                                  // null
  TemplateValue(bool b) : data_(b) {}                                         // NOLINT: implicit like JSON
  TemplateValue(int64_t i) : data_(i) {}                                      // NOLINT
  TemplateValue(double d) : data_(d) {}                                       // NOLINT
  TemplateValue(std::string s) : data_(std::move(s)) {}                       // NOLINT
  TemplateValue(const char* s) : data_(std::string(s)) {}                     // NOLINT
  TemplateValue(Array a) : data_(std::make_shared<Array>(std::move(a))) {}    // NOLINT
  TemplateValue(Object o) : data_(std::make_shared<Object>(std::move(o))) {}  // NOLINT

  // A string that counts as the template's own text, so control tokens in it are honoured: bos_token and
  // eos_token, and roles once they are known to be one of a fixed set (some templates build "<|user|>" from
  // them). Never for anything a user can choose freely.
  static TemplateValue trusted(std::string s) {
    TemplateValue v(std::move(s));
    v.trusted_ = true;
    return v;
  }

  using Data = std::variant<std::monostate, bool, int64_t, double, std::string, std::shared_ptr<Array>,
                            std::shared_ptr<Object>>;
  const Data& data() const { return data_; }
  bool is_trusted() const { return trusted_; }

 private:
  Data data_;
  bool trusted_ = false;
};

}  // namespace kvasir
