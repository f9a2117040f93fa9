#pragma once

#include <array>
#include <cstdint>
#include <functional>

#include "base/aligned_buffer.h"
#include "base/kv_type.h"
#include "base/thread_pool.h"
#include "kernels/table.h"
#include "perf/bench_operands.h"
#include "perf/kernel_rates.h"

// The part of kernel_bench.cc that times work on rows.
namespace kvasir {

class RowBench {
 public:
  // All outlive it.
  RowBench(ThreadPool& pool, const KernelTable& kernels, const BenchOperands& space);

  // Measures everything once. What is stored to open a tile was last touched by the pass before, and is in no
  // cache if that much was read since.
  void pass();
  RowRates rates(PassRange passes) const;  // medians

 private:
  enum Kind : uint8_t { kNorm, kQuantize, kRope, kSilu, kGelu, kAdd, kStoreF16, kStoreInt8, kTrig, kScan };
  static constexpr size_t kKinds = kScan + 1;
  // Whether it comes right after a product. The others go on with what their thread has made.
  static constexpr bool kForeign[kKinds] = {true, false, true, false, false, true, true, true, false, false};
  using RowFn = std::function<void(uint32_t thread, uint32_t row)>;

  float* x(uint32_t thread, uint32_t row) const;
  float* y(uint32_t thread, uint32_t row) const;
  RowFn kernel(Kind kind);
  RowFn store(KvType type, bool open) const;
  double seconds(const RowFn& fn, uint32_t values, bool foreign);
  double open_seconds(KvType type);

  ThreadPool& pool_;
  const KernelTable& kernels_;
  const BenchOperands& space_;
  AlignedBuffer kv_;  // [type][thread][row]: blocks, one for each head of a row
  std::array<Samples, kKinds> kinds_;
  std::array<Samples, 2> open_;  // of f16 and int8
};

}  // namespace kvasir
