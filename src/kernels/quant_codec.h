#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace kvasir {

// Decodes `elements` consecutive GGUF values (a whole number of storage blocks) to f32, exactly as the `gguf`
// Python package does. Works for every row of dtype_table().
void dequantize(DType type, const std::byte* src, size_t elements, float* dst);

// IEEE half and bfloat16 conversions, exact; float_to_half rounds to nearest even and keeps NaN and
// infinities.
float half_to_float(uint16_t h);
uint16_t float_to_half(float f);
float bf16_to_float(uint16_t b);

}  // namespace kvasir
