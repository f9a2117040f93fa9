#include "engine/memory_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <sstream>

namespace kvasir {
namespace {

// cgroup v1 says "no limit" with a number near 2^63.
constexpr uint64_t kUnlimited = uint64_t{1} << 60;

std::optional<uint64_t> read_number(const std::string& path) {
  std::ifstream in(path);
  uint64_t value = 0;
  if (in >> value) return value;
  return std::nullopt;  // absent, or "max"
}

// The number after a word at the start of a line ("inactive_file 123", "MemAvailable:   123 kB").
std::optional<uint64_t> read_field(const std::string& path, const std::string& word) {
  std::ifstream in(path);
  for (std::string line; std::getline(in, line);) {
    std::istringstream fields(line);
    std::string name;
    uint64_t value = 0;
    if (fields >> name >> value && name == word) return value;
  }
  return std::nullopt;
}

// The path of this process in a hierarchy: the line "0::PATH" for v2, "N:...,memory,...:PATH" for v1.
std::optional<std::string> own_cgroup(const std::string& root, bool v2) {
  std::ifstream in(root + "/proc/self/cgroup");
  for (std::string line; std::getline(in, line);) {
    const size_t first = line.find(':');
    const size_t second = line.find(':', first == std::string::npos ? first : first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = "," + line.substr(first + 1, second - first - 1) + ",";
    const bool wanted = v2 ? controllers == ",," : controllers.find(",memory,") != std::string::npos;
    if (wanted) return line.substr(second + 1);
  }
  return std::nullopt;
}

struct CgroupFiles {
  const char* limit;
  const char* usage;
  const char* reclaimable;  // field of memory.stat
};

// Walks from our cgroup to the mount point; inside a container the path may not exist below it, and the mount
// point itself is our cgroup.
struct CgroupLeft {
  uint64_t bytes = 0;
  uint64_t limit = 0;
};
std::optional<CgroupLeft> tightest(const std::string& mount, std::string path, const CgroupFiles& files) {
  std::optional<CgroupLeft> left;
  for (;;) {
    while (!path.empty() && path.back() == '/') path.pop_back();
    const std::string dir = mount + path + "/";
    const std::optional<uint64_t> limit = read_number(dir + files.limit);
    const std::optional<uint64_t> usage = read_number(dir + files.usage);
    if (limit && usage && *limit < kUnlimited) {
      const uint64_t droppable = read_field(dir + "memory.stat", files.reclaimable).value_or(0);
      const uint64_t used = *usage - std::min(*usage, droppable);
      const uint64_t here = *limit - std::min(*limit, used);
      if (!left || here < left->bytes) left = {here, *limit};
    }
    if (path.empty()) return left;
    path.erase(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
  }
}

std::string mib(uint64_t bytes) {
  return fmt::format("{} MiB", bytes >> 20);
}

std::string describe_usable(const MemoryReadings& readings) {
  const uint64_t usable = usable_memory(readings);
  if (readings.cgroup_left && *readings.cgroup_left <= readings.available)
    return fmt::format("{} that the container's limit of {} leaves", mib(usable), mib(readings.cgroup_limit));
  return fmt::format("{} of memory that are free", mib(usable));
}

}  // namespace

MemoryReadings read_memory(const std::string& root) {
  MemoryReadings readings;
  readings.available = read_field(root + "/proc/meminfo", "MemAvailable:").value_or(0) * 1024;
  const CgroupFiles v2 = {"memory.max", "memory.current", "inactive_file"};
  const CgroupFiles v1 = {"memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"};
  const auto add = [&](const std::optional<CgroupLeft>& left) {
    if (!left || left->bytes >= readings.cgroup_left.value_or(UINT64_MAX)) return;
    readings.cgroup_left = left->bytes;
    readings.cgroup_limit = left->limit;
  };
  add(tightest(root + "/sys/fs/cgroup", own_cgroup(root, true).value_or(""), v2));
  add(tightest(root + "/sys/fs/cgroup/memory", own_cgroup(root, false).value_or(""), v1));
  return readings;
}

uint64_t usable_memory(const MemoryReadings& readings) {
  return std::min(readings.available, readings.cgroup_left.value_or(readings.available));
}

Result<KvPoolPlan> plan_kv_pool(const KvLayout& layout, const MemoryReadings& readings,
                                const KvPoolWish& wish) {
  const uint64_t usable = usable_memory(readings);
  const uint64_t most = usable - std::min(usable, wish.reserved);
  const std::string there = describe_usable(readings);
  if (wish.bytes > most)
    return resource_exhausted(
        fmt::format("a KV pool of {} was asked for; there are {}, and {} are needed beside it: at most {}",
                    mib(wish.bytes), there, mib(wish.reserved), mib(most)));
  if (wish.bytes != 0) return KvPoolPlan{wish.bytes, "as was asked for"};
  uint64_t wanted = uint64_t{layout.blocks_for(wish.max_model_len)} * layout.block_bytes();
  if (__builtin_mul_overflow(wanted, uint64_t{wish.max_num_seqs}, &wanted)) wanted = UINT64_MAX;
  const uint64_t fifths = usable / 5 * 4;
  const uint64_t bytes = std::min({wanted, fifths, most});
  const uint64_t least = uint64_t{layout.units()} * layout.block_bytes();
  if (bytes < least)
    return resource_exhausted(fmt::format(
        "there are {}, and {} are needed beside the KV pool: too little for one (a block takes {} "
        "KiB)",
        there, mib(wish.reserved), least >> 10));
  if (bytes == wanted)
    return KvPoolPlan{
        bytes, fmt::format("enough for {} sequences of {} tokens", wish.max_num_seqs, wish.max_model_len)};
  if (bytes == fifths) return KvPoolPlan{bytes, fmt::format("four fifths of the {}", there)};
  return KvPoolPlan{bytes, fmt::format("of the {}, less {} for everything else", there, mib(wish.reserved))};
}

}  // namespace kvasir
