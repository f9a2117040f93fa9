#include "apps/kvasir/terminal_input.h"

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <utility>

namespace kvasir {

TerminalInput::TerminalInput() {
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

std::optional<std::string> TerminalInput::read_line(const char* prompt) {
  std::fputs(prompt, stderr);
  std::fflush(stderr);
  while (true) {
    if (const size_t end = buffer_.find('\n'); end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      return line;
    }
    pollfd waiting[] = {{STDIN_FILENO, POLLIN, 0}, {signal_fd_, POLLIN, 0}};
    if (::poll(waiting, 2, -1) < 0 && errno != EINTR) return std::nullopt;
    if (interrupted()) return std::nullopt;
    if ((waiting[0].revents & (POLLIN | POLLHUP)) == 0) continue;
    char bytes[4096];
    const ssize_t n = ::read(STDIN_FILENO, bytes, sizeof(bytes));
    if (n <= 0) return std::nullopt;
    buffer_.append(bytes, static_cast<size_t>(n));
  }
}

std::string TerminalInput::read_all() {
  char bytes[65536];
  ssize_t n = 0;
  while ((n = ::read(STDIN_FILENO, bytes, sizeof(bytes))) > 0) buffer_.append(bytes, static_cast<size_t>(n));
  while (!buffer_.empty() && buffer_.back() == '\n') buffer_.pop_back();
  return std::exchange(buffer_, {});
}

}  // namespace kvasir
