#pragma once

#include <unistd.h>

#include <csignal>
#include <optional>
#include <string>

#include "base/result.h"

namespace kvasir {

// Text from standard input, with Ctrl-C as something that is noticed rather than something that kills:
// SIGINT is blocked in every thread started after this object and read here.
class TerminalInput {
 public:
  explicit TerminalInput(int descriptor = STDIN_FILENO);
  ~TerminalInput();
  TerminalInput(const TerminalInput&) = delete;
  TerminalInput& operator=(const TerminalInput&) = delete;

  // The next line, without its end; nullopt at the end of input or on Ctrl-C.
  std::optional<std::string> read_line(const char* prompt);

  // Everything up to the end of input, without newlines there; nullopt on Ctrl-C. kIo when it cannot be read;
  // an input that is closed holds nothing.
  Result<std::optional<std::string>> read_all();

  // Whether Ctrl-C was pressed since the last call.
  bool interrupted();

 private:
  enum class Event { kText, kEnd, kInterrupt, kError };
  Event wait();  // until buffer_ has grown or there is a reason that it will not

  int descriptor_;
  int signal_fd_;
  std::string buffer_;  // read, not yet given out
  int error_ = 0;       // errno of kError
};

}  // namespace kvasir
