#include "gguf/byte_cursor.h"

#include <fmt/core.h>

namespace kvasir {

std::string quoted(std::string_view name) {
  constexpr size_t kShown = 64;
  std::string out = "'";
  for (const char c : name.substr(0, kShown)) {
    const auto byte = static_cast<unsigned char>(c);
    if (byte >= 0x20 && byte < 0x7F)
      out += c;
    else
      out += fmt::format("\\x{:02x}", byte);
  }
  out += "'";
  if (name.size() > kShown) out += fmt::format(" (the first {} of {} bytes)", kShown, name.size());
  return out;
}

Status truncated(const ByteCursor& in, std::string_view what) {
  return corrupt(fmt::format("the file ends inside {}: {} bytes are left at byte {}", what, in.remaining(),
                             in.position()));
}

Result<std::string_view> ByteCursor::read_string(std::string_view what) {
  uint64_t length = 0;
  if (!read(&length)) return truncated(*this, what);
  if (length > remaining())
    return corrupt(
        fmt::format("{} claims {} bytes, but {} are left at byte {}", what, length, remaining(), position_));
  const auto* text = reinterpret_cast<const char*>(bytes_.data()) + position_;
  position_ += length;
  return std::string_view(text, length);
}

}  // namespace kvasir
