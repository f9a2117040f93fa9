#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace kvasir {

// Non-owning typed, shaped memory. shape[0] is the contiguous dimension (GGUF order): a weight of a linear
// layer with K inputs and N outputs has shape {K, N, 1, 1}, row n holding the K weights of output n.
struct TensorView {
  DType type = DType::kF32;
  std::array<uint64_t, 4> shape = {1, 1, 1, 1};
  const std::byte* data = nullptr;

  uint64_t elements() const { return shape[0] * shape[1] * shape[2] * shape[3]; }
  uint64_t rows() const { return shape[1] * shape[2] * shape[3]; }
  size_t row_bytes() const { return dtype_bytes(type, shape[0]); }
  size_t bytes() const { return row_bytes() * rows(); }
  bool present() const { return data != nullptr; }
};

}  // namespace kvasir
