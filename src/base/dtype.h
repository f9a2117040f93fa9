#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace kvasir {

// Storage types of tensors, numbered as GGUF numbers them (ggml_type).
enum class DType : uint32_t {
  kF32 = 0,
  kF16 = 1,
  kQ4_0 = 2,
  kQ4_1 = 3,
  kQ5_0 = 6,
  kQ5_1 = 7,
  kQ8_0 = 8,
  kQ2_K = 10,
  kQ3_K = 11,
  kQ4_K = 12,
  kQ5_K = 13,
  kQ6_K = 14,
  kIQ4_NL = 20,
  kBF16 = 30,
  kMXFP4 = 39,
};

// One row of the dtype table: a type's name and its storage block.
struct DTypeInfo {
  DType type;
  std::string_view name;    // as users know it: "Q4_K"
  uint32_t block_elements;  // elements per storage block (1 for the float types)
  uint32_t block_bytes;     // bytes per storage block
};

// Every type we can read.
std::span<const DTypeInfo> dtype_table();

// The row of a GGUF type number, or nullptr for a type we do not know.
const DTypeInfo* find_dtype(uint32_t ggml_type);

// The row of a known type.
const DTypeInfo& dtype_info(DType type);

// Bytes of `elements` consecutive values. `elements` must be a multiple of the type's block.
size_t dtype_bytes(DType type, size_t elements);

}  // namespace kvasir
