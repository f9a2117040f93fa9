#include "playground.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <new>
#include <numeric>

#include "base/check.h"

namespace kvasir::sim {
namespace {

constexpr uint64_t kBatch = 64;  // seeds per child
constexpr size_t kMessage = 2000;

// What a child leaves behind, however it ends.
struct Report {
  uint64_t seed;  // being played
  uint64_t played;
  Tally tally;
  bool failed;
  char what[kMessage];
};

class SharedReport {
 public:
  SharedReport() {
    void* memory = mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    report_ = new (memory) Report{};
  }
  ~SharedReport() { munmap(report_, sizeof(Report)); }
  SharedReport(const SharedReport&) = delete;
  SharedReport& operator=(const SharedReport&) = delete;
  Report* operator->() { return report_; }

 private:
  Report* report_;
};

Scenario scenario_of(WorldKind kind, uint64_t seed, const std::vector<uint32_t>& kept) {
  Scenario all = make_scenario(kind, seed);
  Scenario some{all.setup, {}};
  for (const uint32_t i : kept) {
    if (i < all.ops.size()) some.ops.push_back(all.ops[i]);
  }
  return some;
}

void set_failure(SharedReport& report, const std::string& what) {
  report->failed = true;
  const size_t length = std::min(what.size(), kMessage - 1);
  std::memcpy(report->what, what.data(), length);
  report->what[length] = 0;
}

// Runs `work` in a child with its standard error in a file, and sets a failure where the child died.
template <class F>
void run_child(SharedReport& report, F work) {
  std::FILE* errors = std::tmpfile();
  CHECK(errors != nullptr);
  std::fflush(nullptr);
  const pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    dup2(fileno(errors), 2);
    work();
    _exit(0);
  }
  int status = 0;
  CHECK(waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
    std::string said(kMessage / 2, ' ');
    std::rewind(errors);
    said.resize(std::fread(said.data(), 1, said.size(), errors));
    set_failure(report,
                fmt::format("the process died ({} {}): {}", WIFSIGNALED(status) ? "signal" : "exit status",
                            WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), said));
  }
  std::fclose(errors);
}

}  // namespace

std::vector<uint32_t> all_operations(WorldKind kind, uint64_t seed) {
  std::vector<uint32_t> all(make_scenario(kind, seed).ops.size());
  std::iota(all.begin(), all.end(), 0u);
  return all;
}

std::optional<Failure> play_apart(WorldKind kind, uint64_t seed, const std::vector<uint32_t>& kept) {
  SharedReport report;
  run_child(report, [&] {
    const Status status = play(kind, scenario_of(kind, seed, kept), &report->tally);
    if (!status.ok()) set_failure(report, status.message());
  });
  if (!report->failed) return std::nullopt;
  return Failure{seed, kept, report->what};
}

Campaign play_seeds(WorldKind kind, uint64_t first, const std::function<bool(uint64_t)>& go_on) {
  Campaign campaign;
  while (!campaign.failure && go_on(campaign.played)) {
    SharedReport report;
    report->seed = first + campaign.played;
    run_child(report, [&] {
      for (uint64_t i = 0; i < kBatch && !report->failed && go_on(campaign.played + i); ++i) {
        report->seed = first + campaign.played + i;
        const Status status = play(kind, make_scenario(kind, report->seed), &report->tally);
        if (!status.ok()) set_failure(report, status.message());
        ++report->played;
      }
    });
    campaign.tally += report->tally;
    campaign.played += report->played;
    if (report->failed)
      campaign.failure = Failure{report->seed, all_operations(kind, report->seed), report->what};
  }
  return campaign;
}

Failure shrink(WorldKind kind, const Failure& failure) {
  Failure smallest = failure;
  for (size_t part = std::max<size_t>(1, smallest.kept.size() / 2); part > 0;) {
    bool shrunk = false;
    for (size_t from = 0; from < smallest.kept.size();) {
      std::vector<uint32_t> kept = smallest.kept;
      const auto begin = kept.begin() + static_cast<ptrdiff_t>(from);
      kept.erase(begin, begin + static_cast<ptrdiff_t>(std::min(part, kept.size() - from)));
      if (auto smaller = play_apart(kind, failure.seed, kept)) {
        smallest = *smaller;
        shrunk = true;
      } else {
        from += part;
      }
    }
    if (part == 1 && !shrunk) break;
    part = part == 1 ? 1 : part / 2;
  }
  return smallest;
}

std::string list_text(const std::vector<uint32_t>& list) {
  std::string text;
  for (size_t i = 0; i < list.size();) {
    size_t end = i + 1;
    while (end < list.size() && list[end] == list[end - 1] + 1) ++end;
    if (!text.empty()) text += ',';
    text += end - i == 1 ? fmt::format("{}", list[i]) : fmt::format("{}-{}", list[i], list[end - 1]);
    i = end;
  }
  return text;
}

std::optional<std::vector<uint32_t>> parse_list(const std::string& text) {
  constexpr uint32_t kMost = 1000000;
  std::vector<uint32_t> list;
  const char* at = text.data();
  const char* const end = at + text.size();
  while (at != end) {
    uint32_t from = 0;
    auto read = std::from_chars(at, end, from);
    if (read.ec != std::errc()) return std::nullopt;
    uint32_t to = from;
    if (read.ptr != end && *read.ptr == '-') read = std::from_chars(read.ptr + 1, end, to);
    if (read.ec != std::errc() || to < from || to > kMost) return std::nullopt;
    for (uint32_t i = from; i <= to; ++i) list.push_back(i);
    at = read.ptr;
    if (at != end && *at++ != ',') return std::nullopt;
  }
  return list;
}

std::string failure_text(WorldKind kind, const Failure& failure) {
  const Scenario scenario = make_scenario(kind, failure.seed);
  std::string text = fmt::format("seed {} failed: {}\n", failure.seed, failure.what);
  text += fmt::format("  {}\n", describe(scenario.setup));
  for (const uint32_t i : failure.kept) {
    if (i < scenario.ops.size()) text += fmt::format("  {:3} {}\n", i, describe(scenario.ops[i]));
  }
  text +=
      fmt::format("play it again:\n  kvasir_sim --world {} --seed {} --ops {}\n",
                  kind == WorldKind::kEngine ? "engine" : "scheduler", failure.seed, list_text(failure.kept));
  return text;
}

}  // namespace kvasir::sim
