#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/kv_type.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "kernels/table.h"
#include "models/weight_sizes.h"
#include "perf/hardware_profile.h"
#include "perf/kernel_bench.h"

namespace kvasir {

// The kernels of one model's formats, measured pass by pass between whatever else runs, through memory as
// large as its weights: what they reach now, beside that, and in caches as full. No weight and no step of the
// model is looked at.
class KernelCalibration {
 public:
  struct Options {
    Isa isa = Isa::kScalar;
    KvType kv_type = KvType::kF16;
    uint32_t head_dim = 0;
    uint64_t memory_limit = UINT64_MAX;  // bytes to read at most; 16 MiB are needed
  };
  // The pool outlives it. kResourceExhausted: there is no such memory.
  static Result<KernelCalibration> make(ThreadPool& pool, const WeightSizes& weights, const Options& options);

  void pass();
  uint32_t passes() const { return passes_; }
  uint64_t bytes() const { return memory_.size(); }
  // The machine with the kernels' medians of those passes, of which there is at least one.
  HardwareProfile applied_to(HardwareProfile machine, PassRange passes = {}) const;

 private:
  KernelCalibration(ThreadPool& pool, const WeightSizes& weights, const Options& options, uint64_t bytes);

  AlignedBuffer memory_;
  std::vector<DType> formats_;
  std::unique_ptr<KernelSampler> sampler_;
  uint32_t passes_ = 0;
};

}  // namespace kvasir
