#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/result.h"

namespace kvasir {

static_assert(std::endian::native == std::endian::little, "GGUF is read as the machine's own integers");

// A name from a file as messages may show it: in quotes, bytes outside printable ASCII escaped, cut after 64
// bytes.
std::string quoted(std::string_view name);

// Reads a little-endian file front to back. No read passes the end, and none allocates more than the file
// holds.
class ByteCursor {
 public:
  explicit ByteCursor(std::span<const std::byte> bytes) : bytes_(bytes) {}

  uint64_t position() const { return position_; }
  uint64_t remaining() const { return bytes_.size() - position_; }

  // False, and nothing read, when fewer than sizeof(T) bytes are left.
  template <class T>
  [[nodiscard]] bool read(T* value) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
    if (remaining() < sizeof(T)) return false;
    std::memcpy(value, bytes_.data() + position_, sizeof(T));
    position_ += sizeof(T);
    return true;
  }

  // `count` values into memory that has room for them. False, and nothing read, when they are not all there.
  template <class T>
  [[nodiscard]] bool read_array(T* values, uint64_t count) {
    static_assert(std::is_trivially_copyable_v<T> && !std::is_same_v<T, bool>);
    if (count > remaining() / sizeof(T)) return false;
    if (count > 0) std::memcpy(values, bytes_.data() + position_, count * sizeof(T));
    position_ += count * sizeof(T);
    return true;
  }

  // A GGUF string: u64 length, then the bytes. The view points into the file. `what` names it in errors.
  Result<std::string_view> read_string(std::string_view what);

 private:
  std::span<const std::byte> bytes_;
  uint64_t position_ = 0;
};

// The error for a file that ends inside `what`.
Status truncated(const ByteCursor& in, std::string_view what);

}  // namespace kvasir
