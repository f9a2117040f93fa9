#pragma once

#include <cstddef>
#include <cstdint>

#include "base/aligned_buffer.h"
#include "base/dtype.h"

namespace kvasir {

// Outputs per panel: one 16-lane float vector, one 64-byte row of the N16K4 layout.
inline constexpr uint32_t kPanelCols = 16;
// Inputs per quantised activation group, and per weight block of every packed format.
inline constexpr uint32_t kGroup = 32;

// A weight matrix in the packed layout the kernels read: N outputs in panels of 16 (the last one padded with
// zero columns), each panel contiguous over all K inputs. kernels/quant/ defines the bytes of each format.
// Values are exactly those of the GGUF tensor.
struct PackedMatrix {
  DType type = DType::kF32;  // the GGUF format it came from
  uint32_t n = 0;            // outputs
  uint32_t k = 0;            // inputs
  size_t panel_bytes = 0;
  const std::byte* data = nullptr;

  uint32_t panels() const { return (n + kPanelCols - 1) / kPanelCols; }
  const std::byte* panel(uint32_t p) const { return data + p * panel_bytes; }
  bool present() const { return data != nullptr; }
  // Panels [begin, end) as a matrix of their own.
  PackedMatrix part(uint32_t begin, uint32_t end) const {
    const uint32_t last = end * kPanelCols < n ? end * kPanelCols : n;
    return {type, last - begin * kPanelCols, k, panel_bytes, panel(begin)};
  }
};

// M activation rows quantised per 32 values to int8 (docs/numerics.md, rule 1): d = max|a| / 127, q =
// round_to_even(a * (1 / d)), all q 0 where d is subnormal, infinite or NaN. Beside them what kernels need
// per group: d, d * sum(q), and the negated integer sums that zero-points multiply.
struct QuantRows {
  int8_t* q = nullptr;        // [M][k]
  float* d = nullptr;         // [M][k/32]
  float* ds = nullptr;        // [M][k/32]  d * float(sum q)
  int32_t* nsum = nullptr;    // [M][k/32]  -(sum q over the group of 32)
  int32_t* nsum16 = nullptr;  // [M][k/16]  the same over halves, for formats with scales per 16
  uint32_t k = 0;
};

// Bytes of a QuantRows' arrays for m rows of k values, each array 64-byte aligned; and the carving of such
// memory.
size_t quant_rows_bytes(uint32_t m, uint32_t k);
QuantRows carve_quant_rows(std::byte* memory, uint32_t m, uint32_t k);
// The same rows seen from `groups` groups further on: column groups * 32 of row 0, or row r for r * k / 32.
QuantRows advance_groups(QuantRows rows, size_t groups);

}  // namespace kvasir
