#include "apps/kvasir/output.h"

#include <poll.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "apps/kvasir/cli.h"

namespace kvasir {

Status write_output(std::string_view text, int descriptor) {
  while (!text.empty()) {
    const ssize_t n = ::write(descriptor, text.data(), text.size());
    if (n >= 0) {
      text.remove_prefix(static_cast<size_t>(n));
    } else if (errno == EAGAIN) {  // whoever shares the terminal or pipe made it non-blocking
      pollfd room{descriptor, POLLOUT, 0};
      ::poll(&room, 1, -1);
    } else if (errno != EINTR) {
      return io_error(fmt::format("cannot write standard {}: {}",
                                  descriptor == STDERR_FILENO ? "error" : "output", std::strerror(errno)));
    }
  }
  return {};
}

void show_progress(std::string_view text) {
  if (::isatty(STDERR_FILENO) == 1) tell("{}\x1b[K\r", text);
}

void end_progress() {
  if (::isatty(STDERR_FILENO) == 1) tell("\x1b[K");
}

Status check_report(const std::string& path) {
  std::error_code ignored;
  const bool there = std::filesystem::exists(path, ignored);
  if (!std::ofstream(path, std::ios::binary | std::ios::app))
    return io_error(fmt::format("--report: {} cannot be written", path));
  if (!there) std::filesystem::remove(path, ignored);
  return {};
}

Status write_report(const std::string& path, std::string_view text) {
  std::ofstream out(path, std::ios::binary);
  out << text;
  out.close();
  if (out) return {};
  return io_error(fmt::format("--report: {} cannot be written", path));
}

int print_or_fail(std::string_view text) {
  const Status status = write_output(text);
  if (!status.ok()) return fail(kExitFailure, status.message());
  return kExitOk;
}

}  // namespace kvasir
