#pragma once

#include <chrono>
#include <csignal>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/api_server.h"

namespace kvasir {

// The process side of a server: signals are blocked in every thread started after this object and waited for
// here, and the limit of open files is raised as far as allowed.
class ServeProcess {
 public:
  ServeProcess();

  // While a model loads: a signal ends the process at once (0 for SIGTERM, 130 for SIGINT).
  void exit_if_signalled() const;

  // Waits for SIGTERM or SIGINT, then drains: no new work, and what runs gets `patience`; a second signal, or
  // the end of it, ends everything.
  void serve_until_signalled(ApiServer& server, std::chrono::seconds patience) const;

 private:
  int wait_for_signal(std::chrono::milliseconds time) const;  // 0 when none came

  sigset_t signals_;
};

// Why a text that is not empty can be no API key, or "".
std::string_view fault_of_key(std::string_view key);

// Adds the keys of a key file to *access, and their terms; no file for "". A line is a key and, behind
// blanks, what it is entitled to where that is not the default: weight=2 (a share of the engine twice that of
// others), best-priority=5 (its requests may not ask for lower numbers); a line that begins with # is a
// comment. A key may stand there once. Errors name the line, never the key.
Status read_key_file(const std::string& path, AccessPolicy* access);

}  // namespace kvasir
