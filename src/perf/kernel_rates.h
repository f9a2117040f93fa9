#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/dtype.h"
#include "base/kv_type.h"

namespace kvasir {

struct HardwareProfile;

// What the kernels reach on a machine, as KernelSampler found it, in seconds. "Cached": what is read lies in
// the threads' own caches; "memory": it was last read KernelRates::memory_bytes before.

// The linear kernel over weights of one format, all threads together, each going on and on through its own:
// seconds per weight value (of n * k), for as many rows as KernelRates::linear_rows says at the same index.
// One value over its bytes is the cost per byte, over the rows that per multiply-add.
struct LinearRates {
  DType type = DType::kF32;
  double unpack = 0;  // of one thread, per value of a column taken out of a packed panel (embeddings)
  std::vector<double> cached, memory;
};

// One call of the attention kernel while all threads run such calls, for so many query rows under one KV head
// as KernelRates::attention_rows says: seconds per call and per position that the call walks over. begin:
// what a call takes more until positions come from memory at their rate.
struct AttentionRates {
  KvType kv_type = KvType::kF16;
  uint32_t head_dim = 0;
  std::vector<double> call, begin, cached, memory;
};

// Row-wise work of one thread while all work, per value. trig: one cosine and one sine; scan: a logit that is
// looked at for the best; open: what storing K and V takes more where the tile of positions that they belong
// to lies in memory.
struct RowRates {
  double norm = 0, quantize = 0, rope = 0, silu = 0, gelu = 0, add = 0, store_f16 = 0, store_int8 = 0,
         open_f16 = 0, open_int8 = 0, trig = 0, scan = 0;
};

struct KernelRates {
  std::vector<uint32_t> linear_rows, attention_rows;  // ascending, at least two each
  std::vector<LinearRates> linear;
  std::vector<AttentionRates> attention;
  RowRates rows;
  uint64_t memory_bytes = 0;  // of the memory that the rates from memory were read from, over and over
  // What a phase of matrices takes beyond its weights: their streams begin, and at its end the threads meet.
  double begin_cached = 0, begin_memory = 0;

  bool has(DType type) const;
  // The rates of a format; where it was not measured, the dearest of those that were.
  const LinearRates& of(DType type) const;
  // Those of the nearest head_dim, per position scaled to it; the other KV type's where none of this was
  // measured.
  AttentionRates of(KvType type, uint32_t head_dim) const;
};

// Passes of a measurement, [begin, end).
struct PassRange {
  uint32_t begin = 0;
  uint32_t end = UINT32_MAX;
};

// ys over ascending xs: linear in between, the first before it, along the last slope beyond.
double interpolate(std::span<const uint32_t> xs, std::span<const double> ys, double x);

// Rates for a machine of which only the peaks are known, such as a published one: parts of its roofline that
// kernels like ours commonly reach. Stated, not measured:
inline constexpr double kDerivedReadPart = 0.85;     // of the read rate, streaming weights or KV
inline constexpr double kDerivedComputePart = 0.50;  // of the int8 peak, once a weight is unpacked
inline constexpr double kDerivedUnpackMacs = 4;      // multiply-adds that unpacking a weight costs as much as
inline constexpr double kDerivedAttentionPart = 0.40;  // of the f32 peak
inline constexpr double kDerivedRowPart = 0.02;        // of the f32 peak, per value of row-wise work
inline constexpr double kDerivedBeginSeconds = 1e-6;   // until weights stream from memory
KernelRates derived_rates(const HardwareProfile& machine, std::span<const DType> formats);

// The row counts that are measured.
std::span<const uint32_t> measured_linear_rows();
std::span<const uint32_t> measured_attention_rows();

}  // namespace kvasir
