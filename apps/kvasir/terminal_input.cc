#include "apps/kvasir/terminal_input.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "apps/kvasir/output.h"

namespace kvasir {

TerminalInput::TerminalInput(int descriptor) : descriptor_(descriptor) {
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  signal_fd_ = ::signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
}

TerminalInput::~TerminalInput() {
  ::close(signal_fd_);
}

bool TerminalInput::interrupted() {
  signalfd_siginfo info;
  bool any = false;
  while (::read(signal_fd_, &info, sizeof(info)) == static_cast<ssize_t>(sizeof(info))) any = true;
  return any;
}

TerminalInput::Event TerminalInput::wait() {
  while (true) {
    pollfd waiting[] = {{descriptor_, POLLIN, 0}, {signal_fd_, POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0 && errno != EINTR) {
      error_ = errno;
      return Event::kError;
    }
    if (interrupted()) return Event::kInterrupt;
    if (waiting[0].revents == 0) continue;
    char bytes[65536];
    const ssize_t n = ::read(descriptor_, bytes, sizeof(bytes));
    if (n > 0) {
      buffer_.append(bytes, static_cast<size_t>(n));
      return Event::kText;
    }
    if (n == 0 || errno == EBADF) return Event::kEnd;
    if (errno == EINTR || errno == EAGAIN) continue;
    error_ = errno;
    return Event::kError;
  }
}

std::optional<std::string> TerminalInput::read_line(const char* prompt) {
  tell("{}", prompt);
  while (true) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    const Event event = wait();
    if (event == Event::kText) continue;
    if (event == Event::kEnd && !buffer_.empty()) return std::exchange(buffer_, {});
    return std::nullopt;
  }
}

Result<std::optional<std::string>> TerminalInput::read_all() {
  Event event = wait();
  while (event == Event::kText) event = wait();
  if (event == Event::kInterrupt) return std::optional<std::string>();
  if (event == Event::kError)
    return io_error(fmt::format("cannot read standard input: {}", std::strerror(error_)));
  while (!buffer_.empty() && buffer_.back() == '\n') buffer_.pop_back();
  return std::optional<std::string>(std::exchange(buffer_, {}));
}

}  // namespace kvasir
