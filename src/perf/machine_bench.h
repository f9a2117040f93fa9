#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/dtype.h"
#include "base/kv_type.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/table.h"
#include "perf/hardware_profile.h"

namespace kvasir {

struct MachineBenchOptions {
  Isa isa = Isa::kScalar;
  uint64_t memory_limit = UINT64_MAX;  // the largest buffer is no larger; at least 32 KiB are used
  bool quick = false;  // fewer sizes and repetitions: 8 seconds instead of 15, 2 without kernels
  bool brief = false;  // as little as a server that starts may take: about a second
  // Whose kernels to time: weights of these formats, and heads of these sizes over these KV caches. Empty:
  // all formats, the usual heads and every KV type.
  std::vector<DType> formats = {};
  std::vector<uint32_t> head_dims = {};
  std::vector<KvType> kv_types = {};
  bool kernels = true;  // whether to time kernels at all
  // Bytes of memory that they go through at most: as many as a model's weights, if they are timed for it
  // alone (KernelSampler).
  uint64_t working_set = UINT64_MAX;
  std::function<void(const std::string& what)> progress;
};

// Measures what this machine can do at most with the pool's threads: warms up until the clock has settled,
// then takes the best of several repetitions of every peak, since other tenants can only take away, and then
// times the kernels (perf/kernel_bench.h). The machine must be idle otherwise. kResourceExhausted: not even
// the smallest buffer.
Result<HardwareProfile> measure_machine(ThreadPool& pool, const MachineBenchOptions& options);

// Plain reading meets the prefetchers less well than some kernels do, and what they read with all threads is
// read: raises the rates of all threads so that a set as large as the memory that the kernels went through is
// read as fast as by the fastest of them, and every other size so that as much of it as before comes from
// memory. Of a profile with kernel rates.
void raise_reads(HardwareProfile& machine);

// What drifts, as it was at one moment.
struct MachineProbe {
  double clock_hz = 0;
  double int8_macs = 0;  // per second, all threads
  double read_rate = 0;  // bytes per second, all threads, over read_bytes
  uint64_t read_bytes = 0;
};

// Looks at the machine for a quarter of a second: before and after a measurement, two looks say whether both
// saw the same machine. Keeps the memory it reads.
class MachineProber {
 public:
  struct Memory {
    AlignedBuffer buffer;
    uint64_t written = 0;
  };

  // Reads read_bytes, or as much of it as a second suffices to get. The pool outlives the prober.
  // kResourceExhausted: there is no such memory.
  static Result<MachineProber> make(ThreadPool& pool, Isa isa, uint64_t read_bytes);
  MachineProbe look();

 private:
  MachineProber(ThreadPool& pool, Isa isa, Memory memory)
      : pool_(&pool), isa_(isa), memory_(std::move(memory)) {}
  ThreadPool* pool_;
  Isa isa_;
  Memory memory_;
};

}  // namespace kvasir
