#include "apps/kvasir/serve_process.h"

#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
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

namespace {

// Reads one word behind a key into its terms; false when it is none.
bool read_term(const std::string& word, KeyTerms* terms) {
  const auto number = [&](std::string_view name, auto* value) {
    if (!word.starts_with(name)) return false;
    const char* end = word.data() + word.size();
    const auto read = std::from_chars(word.data() + name.size(), end, *value);
    return read.ec == std::errc() && read.ptr == end;
  };
  if (number("best-priority=", &terms->best_priority)) return true;
  return number("weight=", &terms->weight) && terms->weight >= 1e-3 && terms->weight <= 1e3;
}

}  // namespace

std::string_view fault_of_key(std::string_view key) {
  const auto control = [](unsigned char c) { return c < ' ' || c == 0x7F; };
  if (key.starts_with(' ') || key.ends_with(' ') || std::ranges::any_of(key, control))
    return "no client can send it: an HTTP header takes no control character, and no blank at either end";
  return {};
}

Status read_key_file(const std::string& path, AccessPolicy* access) {
  if (path.empty()) return {};
  const Result<std::string> text = read_text_file(path);
  if (!text.ok()) return invalid_argument("--api-key-file: " + text.message());
  const size_t before = access->api_keys.size();
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";  // some editors begin every file with it
  std::istringstream lines(text->starts_with(kByteOrderMark) ? text->substr(kByteOrderMark.size()) : *text);
  size_t number = 0;
  std::map<std::string, size_t> lines_of;
  for (std::string line; std::getline(lines, line);) {
    ++number;
    std::istringstream words(line);
    std::string key;
    if (!(words >> key) || key.front() == '#') continue;
    if (const std::string_view fault = fault_of_key(key); !fault.empty())
      return invalid_argument(
          fmt::format("--api-key-file: '{}', line {}: of the key there, {}", path, number, fault));
    const auto [first, is_new] = lines_of.emplace(key, number);
    if (!is_new)
      return invalid_argument(fmt::format("--api-key-file: '{}', line {}: the key stands in line {} already",
                                          path, number, first->second));
    KeyTerms terms;
    bool has_terms = false;
    for (std::string word; words >> word; has_terms = true) {
      if (!read_term(word, &terms))
        return invalid_argument(
            fmt::format("--api-key-file: '{}', line {}: behind the key stand at most weight=W (from 0.001 to "
                        "1000) and best-priority=N (a whole number), with blanks between them",
                        path, number));
    }
    if (has_terms) access->terms[key] = terms;
    access->api_keys.push_back(std::move(key));
  }
  if (access->api_keys.size() == before)
    return invalid_argument(fmt::format("--api-key-file: '{}' holds no key", path));
  return {};
}

}  // namespace kvasir
