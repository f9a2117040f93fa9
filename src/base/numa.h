#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace kvasir {

// The numbers of a list as Linux writes it ("0-1,3"); nothing when it is none, or names a number above 1023.
std::optional<std::vector<uint32_t>> parse_node_list(std::string_view text);

// Where memory that this process touches from now on comes from.
struct MemoryNodes {
  uint32_t nodes = 1;        // with memory that it may use
  bool interleaved = false;  // pages come from all of them in turn
  std::string reason;        // why not, though there are several
};

// On a machine with several NUMA nodes lets the pages that the calling thread, and threads that it starts
// from now on, touch first come from all nodes in turn. Otherwise one node's memory serves all threads where
// one thread fills it, at its bandwidth alone. A policy that was there before (numactl) is left as it is.
MemoryNodes interleave_memory();

}  // namespace kvasir
