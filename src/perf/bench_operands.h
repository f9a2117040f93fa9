#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kernels/matrix.h"
#include "kernels/table.h"
#include "perf/kernel_rates.h"

// Parts of kernel_bench.cc: timing, samples and operands.
namespace kvasir {

// A matrix that two threads hold in a second-level cache of 1 MiB each, in every format.
inline constexpr uint32_t kBenchInputs = 1024, kBenchOutputs = 1024;

double bench_seconds_now();

// Seconds from when all threads stand ready until all have done fn(worker).
double seconds_of(ThreadPool& pool, const std::function<void(Worker&)>& fn);

// Samples of one number, one per pass. Its value is the median of some of them.
struct Samples {
  std::vector<double> values;
  double value(PassRange passes) const;
};

std::vector<double> medians(const std::vector<Samples>& list, PassRange passes);

// The values of samples for ascending row counts, made to ascend: what descends is averaged (pool adjacent
// violators, Barlow et al., Statistical Inference under Order Restrictions, 1972). More rows never take less;
// a measurement that says otherwise is noise.
std::vector<double> curve(const std::vector<Samples>& list, PassRange passes);

// What kernels read and write beside weights and KV: allocated once, ordinary numbers everywhere.
class BenchOperands {
 public:
  BenchOperands(uint32_t threads, uint32_t rows);
  float* floats() const { return floats_.as<float>().data(); }  // [rows][kBenchInputs]
  float* out() const { return out_.as<float>().data(); }        // [rows][kBenchOutputs]
  std::byte* scratch(uint32_t thread) const { return scratch_.data() + thread * kScratch; }

 private:
  static constexpr size_t kScratch =
      kLinearScratchBytes > kAttnScratchBytes ? kLinearScratchBytes : kAttnScratchBytes;
  AlignedBuffer scratch_, floats_, out_, quantised_;

 public:
  QuantRows x;  // [rows][kBenchInputs]
};

}  // namespace kvasir
