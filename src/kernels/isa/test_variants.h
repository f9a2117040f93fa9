#pragma once

#include "kernels/table.h"

// Kernels of instruction sets that are rare, built for the tests from the same templates with instructions
// that are common: everything but the encoding runs where the instruction set itself would not.
namespace kvasir {

namespace avxvnni {
void linear_evex(const LinearArgs& args);  // needs AVX512-VNNI
void linear_soft(const LinearArgs& args);  // needs AVX2
}  // namespace avxvnni

namespace amx {
void linear_soft_tiles(const LinearArgs& args);  // needs AVX512-VNNI
}  // namespace amx

}  // namespace kvasir
