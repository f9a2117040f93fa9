#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

namespace kvasir {

// Writes one JSON text, append only. What it writes is always valid JSON in UTF-8: broken UTF-8 becomes
// U+FFFD, NaN and infinities become null, and U+2028/2029 are escaped so that the text may stand inside a
// script. Numbers are the shortest that read back the same, in any locale. Nesting is the caller's duty.
class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);

  JsonWriter& value(std::string_view text);
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(double number);
  JsonWriter& value(float number);
  template <std::same_as<bool> B>
  JsonWriter& value(B truth) {
    return raw(truth ? "true" : "false");
  }
  template <std::integral I>
  requires(!std::same_as<I, bool>) JsonWriter& value(I number) {
    if constexpr (std::is_signed_v<I>)
      return integer(static_cast<int64_t>(number));
    else
      return unsigned_integer(static_cast<uint64_t>(number));
  }
  JsonWriter& null() { return raw("null"); }
  JsonWriter& raw(std::string_view json);  // one finished JSON value

  template <class T>
  JsonWriter& field(std::string_view name, const T& v) {
    key(name);
    return value(v);
  }
  JsonWriter& null_field(std::string_view name) {
    key(name);
    return null();
  }
  JsonWriter& raw_field(std::string_view name, std::string_view json) {
    key(name);
    return raw(json);
  }

  const std::string& text() const { return out_; }
  std::string take() { return std::move(out_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  JsonWriter& integer(int64_t number);
  JsonWriter& unsigned_integer(uint64_t number);
  void separate();
  void quote(std::string_view text);

  std::string out_;
  bool comma_ = false;  // a value precedes at this level
};

}  // namespace kvasir
