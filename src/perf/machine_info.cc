#include "perf/machine_info.h"

#include <fmt/format.h>
#include <sched.h>

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

CpuTicks read_cpu_ticks(const std::string& root) {
  std::ifstream in(root + "/proc/stat");
  std::string line;
  std::getline(in, line);
  std::istringstream fields(line);
  std::string name;
  fields >> name;
  CpuTicks ticks;
  if (name != "cpu") return ticks;
  // user nice system idle iowait irq softirq steal; guest time, which follows, is in user already.
  constexpr int kSteal = 7;
  uint64_t value = 0;
  for (int i = 0; i <= kSteal && fields >> value; ++i) {
    ticks.total += value;
    if (i == kSteal) ticks.stolen = value;
  }
  return ticks;
}

double steal_between(const CpuTicks& before, const CpuTicks& after) {
  if (after.total <= before.total || after.stolen <= before.stolen) return 0;
  return static_cast<double>(after.stolen - before.stolen) / static_cast<double>(after.total - before.total);
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
