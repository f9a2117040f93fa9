#include "apps/kvasir/serve_process.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <cstdlib>
#include <sstream>

#include "apps/kvasir/cli.h"
#include "base/log.h"
#include "base/text_file.h"

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
  const Result<std::string> text = read_text_file(path);
  if (!text.ok()) return invalid_argument("--api-key-file: " + text.message());
  constexpr const char* kBlanks = " \t\r";
  const size_t before = keys->size();
  std::istringstream lines(*text);
  for (std::string line; std::getline(lines, line);) {
    const size_t begin = line.find_first_not_of(kBlanks);
    if (begin != std::string::npos)
      keys->push_back(line.substr(begin, line.find_last_not_of(kBlanks) + 1 - begin));
  }
  if (keys->size() == before) return invalid_argument(fmt::format("--api-key-file: '{}' holds no key", path));
  return {};
}

}  // namespace kvasir
