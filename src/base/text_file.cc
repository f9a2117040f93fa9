#include "base/text_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string_view>

namespace kvasir {

Result<std::string> read_text_file(const std::string& path) {
  constexpr size_t kMostBytes = size_t{16} << 20;
  const auto refused = [&](std::string_view why) {
    return io_error(fmt::format("cannot read '{}': {}", path, why));
  };
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return refused(std::strerror(errno));
  std::string text;
  char bytes[65536];
  ssize_t n = 0;
  while (text.size() <= kMostBytes && (n = ::read(file, bytes, sizeof(bytes))) > 0)
    text.append(bytes, static_cast<size_t>(n));
  const int error = n < 0 ? errno : 0;
  ::close(file);
  if (error != 0) return refused(std::strerror(error));
  if (text.size() > kMostBytes) return refused(fmt::format("it is longer than {} bytes", kMostBytes));
  return text;
}

}  // namespace kvasir
