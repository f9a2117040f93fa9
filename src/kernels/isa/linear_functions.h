#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/table.h"

// The linear-layer functions of each instruction set, with the signatures of KernelTable. dispatch.cc puts
// them into the tables; the scalar ones define the bits.
namespace kvasir {

namespace scalar {
void quantize_rows(const float* x, size_t ldx, uint32_t rows, uint32_t k, const QuantRows& out,
                   uint32_t first_row);
void linear(const LinearArgs& args);
}  // namespace scalar

namespace avx2 {
void quantize_rows(const float* x, size_t ldx, uint32_t rows, uint32_t k, const QuantRows& out,
                   uint32_t first_row);
void linear(const LinearArgs& args);
}  // namespace avx2

namespace avx512 {
void quantize_rows(const float* x, size_t ldx, uint32_t rows, uint32_t k, const QuantRows& out,
                   uint32_t first_row);
void linear(const LinearArgs& args);
}  // namespace avx512

// Beyond their linear layers these equal avx2 and avx512.
namespace avxvnni {
void linear(const LinearArgs& args);
}  // namespace avxvnni

namespace amx {
void linear(const LinearArgs& args);
}  // namespace amx

namespace neon {
void quantize_rows(const float* x, size_t ldx, uint32_t rows, uint32_t k, const QuantRows& out,
                   uint32_t first_row);
void linear(const LinearArgs& args);
}  // namespace neon

}  // namespace kvasir
