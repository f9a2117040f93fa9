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
  uint64_t cgroup_limit = 0;            // the limit that leaves so little
};

// Reads /proc/meminfo, /proc/self/cgroup and the cgroup v2 or v1 files under `root` ("" for the real ones).
// What cannot be read is left out.
MemoryReadings read_memory(const std::string& root = "");

// The smaller of what is available and what the cgroup leaves.
uint64_t usable_memory(const MemoryReadings& readings);

// What a KV pool is to hold, and what is needed beside it.
struct KvPoolWish {
  uint64_t bytes = 0;     // asked for; 0: enough for max_num_seqs sequences of max_model_len tokens
  uint64_t reserved = 0;  // that the process will still take for other things
  uint32_t max_num_seqs = 0;
  uint32_t max_model_len = 0;
};
struct KvPoolPlan {
  uint64_t bytes = 0;
  std::string reason;  // "four fifths of the 3.1 GiB that the container's limit of 4.0 GiB leaves"
};

// The size of the KV pool and which limit decided it. What is not asked for is at most four fifths of the
// memory that is usable, and leaves what is reserved. kResourceExhausted, with the numbers, when what is
// asked for, or the least that is useful (one sequence of one block), is more than there is beside it.
Result<KvPoolPlan> plan_kv_pool(const KvLayout& layout, const MemoryReadings& readings,
                                const KvPoolWish& wish);

}  // namespace kvasir
