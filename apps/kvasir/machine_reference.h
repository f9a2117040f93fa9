#pragma once

#include <string>

#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/table.h"
#include "models/model_config.h"
#include "models/weight_sizes.h"
#include "perf/hardware_profile.h"

namespace kvasir {

// The machine that a benchmark compares itself with.
struct MachineReference {
  HardwareProfile profile;
  std::string source;  // "/root/.cache/kvasir/machine.json of 2026-11-29T21:30:00Z", "measured just now"
};

// The profile read from a file that the user named; says on standard error where it is of another machine.
MachineReference named_machine(HardwareProfile profile, const std::string& path, const ThreadPool& pool,
                               Isa isa);

// The profile that `kvasir bench machine` left here, if it is of this processor, these instructions and at
// least these threads (and with kernel rates, if they are wanted), or else a quick measurement. Errors are
// those of measuring.
Result<MachineReference> machine_reference(ThreadPool& pool, Isa isa, bool kernels);

// The machine that a server predicts its steps from: the profile that `kvasir bench machine` left here, if it
// fits and holds these kernels, or else what can be measured in about a second. Says in the log which.
Result<HardwareProfile> serving_machine(ThreadPool& pool, Isa isa, const ModelConfig& config,
                                        const WeightSizes& weights, KvType kv_type);

// Bytes that a measurement may take for its buffer: half of what is free.
uint64_t machine_bench_memory();

}  // namespace kvasir
