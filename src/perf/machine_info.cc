#include "perf/machine_info.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <optional>
#include <set>
#include <sstream>
#include <utility>

namespace kvasir {
namespace {

std::optional<uint32_t> read_number(const std::string& path) {
  std::ifstream in(path);
  uint32_t value = 0;
  if (in >> value) return value;
  return std::nullopt;
}

}  // namespace

std::string cpu_name(const std::string& root) {
  std::ifstream in(root + "/proc/cpuinfo");
  for (std::string line; std::getline(in, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(':');
    const size_t first = colon == std::string::npos ? colon : line.find_first_not_of(" \t", colon + 1);
    return first == std::string::npos ? "" : line.substr(first);
  }
  return "";
}

std::vector<uint32_t> allowed_cpus() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  std::vector<uint32_t> cpus;
  if (sched_getaffinity(0, sizeof(mask), &mask) != 0) return cpus;
  for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (CPU_ISSET(cpu, &mask)) cpus.push_back(cpu);
  }
  return cpus;
}

uint32_t count_cores(const std::vector<uint32_t>& cpus, const std::string& root) {
  std::set<std::pair<uint32_t, uint32_t>> cores;
  for (const uint32_t cpu : cpus) {
    const std::string folder = fmt::format("{}/sys/devices/system/cpu/cpu{}/topology/", root, cpu);
    const auto package = read_number(folder + "physical_package_id");
    const auto core = read_number(folder + "core_id");
    if (!package || !core) return 0;
    cores.emplace(*package, *core);
  }
  return static_cast<uint32_t>(cores.size());
}

CpuTimes read_cpu_times(const std::string& root) {
  std::ifstream in(root + "/proc/stat");
  std::string line;
  std::getline(in, line);
  std::istringstream fields(line);
  std::string name;
  fields >> name;
  CpuTimes times;
  if (name != "cpu") return times;
  // user nice system idle iowait irq softirq steal; guest time, which follows, is in user already.
  constexpr int kIdle = 3, kIoWait = 4, kSteal = 7;
  const auto hertz = static_cast<double>(sysconf(_SC_CLK_TCK));
  uint64_t ticks = 0;
  for (int i = 0; i <= kSteal && fields >> ticks; ++i) {
    const double seconds = static_cast<double>(ticks) / hertz;
    times.total += seconds;
    if (i == kSteal)
      times.stolen = seconds;
    else if (i != kIdle && i != kIoWait)
      times.busy += seconds;
  }
  timespec own{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &own);
  times.own = static_cast<double>(own.tv_sec) + 1e-9 * static_cast<double>(own.tv_nsec);
  return times;
}

CpuShares shares_between(const CpuTimes& before, const CpuTimes& after) {
  const double total = after.total - before.total;
  if (!(total > 0)) return {};
  const auto part = [&](double seconds) { return std::clamp(seconds / total, 0.0, 1.0); };
  return {.others = part((after.busy - before.busy) - (after.own - before.own)),
          .stolen = part(after.stolen - before.stolen)};
}

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  gmtime_r(&now, &utc);
  char text[32];
  const size_t length = std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return {text, length};
}

}  // namespace kvasir
