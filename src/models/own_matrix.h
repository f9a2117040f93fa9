#pragma once

#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "kernels/matrix.h"

namespace kvasir {

// A weight matrix that was made of floats rather than read from a GGUF file, packed for the kernels. Movable;
// its memory stays where it is.
class OwnMatrix {
 public:
  OwnMatrix() = default;
  // values [n][k], k a multiple of 32. As Q8_0 (d = max|x| / 127 of 32 values), or as F16, rounded.
  static OwnMatrix q8_0(std::span<const float> values, uint32_t n, uint32_t k);
  static OwnMatrix f16(std::span<const float> values, uint32_t n, uint32_t k);

  const PackedMatrix& packed() const { return packed_; }
  bool present() const { return packed_.present(); }
  size_t bytes() const { return memory_.size(); }

 private:
  static OwnMatrix pack(DType type, std::span<const std::byte> rows, uint32_t n, uint32_t k);

  AlignedBuffer memory_;
  PackedMatrix packed_;
};

}  // namespace kvasir
