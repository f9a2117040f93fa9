#pragma once

#include <csignal>
#include <optional>
#include <string>

namespace kvasir {

// Lines from standard input, with Ctrl-C as something that is noticed rather than something that kills:
// SIGINT is blocked in every thread started after this object and read here.
class TerminalInput {
 public:
  TerminalInput();
  ~TerminalInput();
  TerminalInput(const TerminalInput&) = delete;
  TerminalInput& operator=(const TerminalInput&) = delete;

  // The next line, without its end; nullopt at the end of input or on Ctrl-C.
  std::optional<std::string> read_line(const char* prompt);
  std::string read_all();

  // Whether Ctrl-C was pressed since the last call.
  bool interrupted();

 private:
  int signal_fd_;
  std::string buffer_;  // read, not yet given out
};

}  // namespace kvasir
