#include "apps/kvasir/serve_process.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>

#include "apps/kvasir/cli.h"
#include "base/log.h"

namespace kvasir {

ServeProcess::ServeProcess() {
  ::sigemptyset(&signals_);
  ::sigaddset(&signals_, SIGTERM);
  ::sigaddset(&signals_, SIGINT);
  ::pthread_sigmask(SIG_BLOCK, &signals_, nullptr);
  std::signal(SIGPIPE, SIG_IGN);
  rlimit files{};
  if (::getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    ::setrlimit(RLIMIT_NOFILE, &files);
  }
}

int ServeProcess::wait_for_signal(std::chrono::milliseconds time) const {
  const timespec timeout{time.count() / 1000, time.count() % 1000 * 1'000'000};
  const int signal = ::sigtimedwait(&signals_, nullptr, &timeout);
  return signal > 0 ? signal : 0;
}

void ServeProcess::exit_if_signalled() const {
  const int signal = wait_for_signal(std::chrono::milliseconds(0));
  if (signal != 0) std::_Exit(signal == SIGTERM ? kExitOk : kExitInterrupted);
}

void ServeProcess::serve_until_signalled(ApiServer& server, std::chrono::seconds patience) const {
  using Clock = std::chrono::steady_clock;
  while (wait_for_signal(std::chrono::seconds(3600)) == 0) {
  }
  spdlog::info("shutting down: running requests get {} s, a second signal ends them", patience.count());
  server.drain();
  const auto deadline = Clock::now() + patience;
  bool told_to_hurry = false;
  while (!server.drained() && !told_to_hurry && Clock::now() < deadline) {
    told_to_hurry = wait_for_signal(std::chrono::milliseconds(20)) != 0;
  }
  if (!server.drained()) server.abort_all();
  const auto last_moment = Clock::now() + std::chrono::seconds(2);
  while (!server.drained() && Clock::now() < last_moment) wait_for_signal(std::chrono::milliseconds(10));
}

Status read_key_file(const std::string& path, std::vector<std::string>* keys) {
  if (path.empty()) return {};
  std::ifstream file(path);
  if (!file) return invalid_argument(fmt::format("--api-key-file: cannot read {}", path));
  const size_t before = keys->size();
  for (std::string line; std::getline(file, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) keys->push_back(line);
  }
  if (keys->size() == before) return invalid_argument(fmt::format("--api-key-file: {} holds no key", path));
  return {};
}

}  // namespace kvasir
