#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/aligned_buffer.h"
#include "base/dtype.h"
#include "base/kv_type.h"
#include "base/thread_pool.h"
#include "kernels/table.h"
#include "perf/kernel_rates.h"

namespace kvasir {

struct KernelBenchOptions {
  std::span<const DType> formats;    // weights to measure
  std::span<const KvType> kv_types;  // KV caches
  std::span<const uint32_t> head_dims;
  uint32_t passes = 5;
  std::function<void(const std::string& what)> progress;
};

// Every byte of the memory that is handed to measure_kernel_rates(): as half, float or power of two an
// ordinary number, so that no kernel meets a subnormal.
inline constexpr int kOrdinaryByte = 0x3c;

// Times the engine's own kernels with the pool's threads, each on its share as in a step: over and over in
// cache, and through `memory`, written with kOrdinaryByte and read from its begin to its end and then from
// its begin again. If it is as large as a model's weights, caches keep as much of it as of those; if it is
// several times the last cache, nothing. Everything is measured once per pass and the median of the passes
// kept, as steps are to be predicted that meet what others do meanwhile too: a machine that drifts or loses a
// time slice then moves all rates alike, or none. A measurement that would take longer than a few hundredths
// of a second is continued from fewer rows.
class KernelSampler {
 public:
  // Pool, kernels and memory outlive it.
  KernelSampler(ThreadPool& pool, const KernelTable& kernels, std::span<const std::byte> memory,
                const KernelBenchOptions& options);
  KernelSampler(KernelSampler&&) noexcept;
  ~KernelSampler();

  // Takes half a second or so, with the formats of one model.
  void pass();
  // Medians of those passes, of which there is at least one.
  KernelRates rates(PassRange passes = {}) const;

 private:
  std::unique_ptr<class KernelBench> bench_;
};

// KernelSampler's rates after options.passes.
KernelRates measure_kernel_rates(ThreadPool& pool, const KernelTable& kernels,
                                 std::span<const std::byte> memory, const KernelBenchOptions& options);

}  // namespace kvasir
