#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "kvcache/kv_layout.h"

namespace kvasir {

// What the machine and the container say about memory, in bytes.
struct MemoryReadings {
  uint64_t available = 0;               // MemAvailable
  std::optional<uint64_t> cgroup_left;  // the tightest limit of our cgroup and its parents less its usage,
                                        // file cache that can be dropped not counted as usage
};

// Reads /proc/meminfo, /proc/self/cgroup and the cgroup v2 or v1 files under `root` ("" for the real ones).
// What cannot be read is left out.
MemoryReadings read_memory(const std::string& root = "");

// The smaller of what is available and what the cgroup leaves.
uint64_t usable_memory(const MemoryReadings& readings);

// Bytes of the KV pool. `requested` 0: enough for max_num_seqs sequences of max_model_len tokens, but not
// more than four fifths of the memory that is usable. kResourceExhausted when the request, or the least that
// is useful (one sequence of one block), is more than there is.
Result<uint64_t> kv_pool_bytes(const KvLayout& layout, const MemoryReadings& readings, uint64_t requested,
                               uint32_t max_num_seqs, uint32_t max_model_len);

}  // namespace kvasir
