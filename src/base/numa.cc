#include "base/numa.h"

#include <linux/mempolicy.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <climits>
#include <cstring>
#include <fstream>

namespace kvasir {
namespace {

constexpr uint32_t kMostNodes = 1024;  // as Linux is built at most
constexpr size_t kBits = sizeof(unsigned long) * CHAR_BIT;
using NodeMask = unsigned long[kMostNodes / kBits];

std::optional<uint32_t> parse_node(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value >= kMostNodes) return std::nullopt;
  return value;
}

// Nodes whose memory this thread may use, as its cgroup and its parents left it.
std::vector<uint32_t> allowed_nodes() {
  constexpr std::string_view kKey = "Mems_allowed_list:";
  std::ifstream status("/proc/thread-self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with(kKey)) continue;
    const size_t begin = line.find_first_not_of(" \t", kKey.size());
    if (begin == std::string::npos) break;
    return parse_node_list(std::string_view(line).substr(begin)).value_or(std::vector<uint32_t>{});
  }
  return {};
}

}  // namespace

std::optional<std::vector<uint32_t>> parse_node_list(std::string_view text) {
  std::vector<uint32_t> nodes;
  while (true) {
    const size_t comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const size_t dash = part.find('-');
    const auto first = parse_node(part.substr(0, dash));
    const auto last = dash == std::string_view::npos ? first : parse_node(part.substr(dash + 1));
    if (!first || !last || *last < *first) return std::nullopt;
    for (uint32_t node = *first; node <= *last; ++node) nodes.push_back(node);
    if (comma == std::string_view::npos) return nodes;
    text.remove_prefix(comma + 1);
  }
}

// set_mempolicy(2); glibc has no wrapper for it.
MemoryNodes interleave_memory() {
  const std::vector<uint32_t> nodes = allowed_nodes();
  if (nodes.size() < 2) return {};
  MemoryNodes result{static_cast<uint32_t>(nodes.size()), false, {}};
  int policy = MPOL_DEFAULT;
  if (syscall(SYS_get_mempolicy, &policy, nullptr, 0, nullptr, 0) == 0 && policy != MPOL_DEFAULT) {
    result.reason = "a memory policy is set already";
    return result;
  }
  NodeMask mask = {};
  for (const uint32_t node : nodes) mask[node / kBits] |= 1ul << (node % kBits);
  // The kernel reads one bit less than it is told.
  result.interleaved = syscall(SYS_set_mempolicy, MPOL_INTERLEAVE, mask, kMostNodes + 1) == 0;
  if (!result.interleaved) result.reason = std::strerror(errno);
  return result;
}

}  // namespace kvasir
