#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"

namespace kvasir {

// How many bits a model's weight takes on average, scales included.
struct WeightFormat {
  std::string name = "BF16";
  double bits = 16;

  // Bytes of so many weights: parameters * bits / 8.
  double bytes(double parameters) const { return parameters * bits / 8; }
};

// A format by name, letters of any case:
//   storage types   every row of dtype_table() (F32, F16, BF16, Q4_0, Q4_K ...): block_bytes * 8 /
//                   block_elements
//   others          fp16, bfloat16, float32, int8, fp8 (8 bits), int4, fp4 (4 bits): scales not counted
//   mixtures        Q4_K_M and its like, which llama.cpp's quantiser makes of several types: the bits that
//   its
//                   README measured on Llama 3.1 8B (tools/quantize/README.md). Other models differ by a few
//                   hundredths; a GGUF file's own directory is exact.
// kInvalidArgument lists the names.
Result<WeightFormat> parse_weight_format(std::string_view name);

// How a KV cache stores a value, and what it keeps beside the values.
struct KvFormat {
  std::string name = "f16";
  double bits = 16;              // per value
  uint32_t scale_bytes = 0;      // per token, layer and KV head, K's and V's together
  uint32_t mla_scale_bytes = 0;  // per token and layer of an MLA cache row, which has no heads

  double value_bytes() const { return bits / 8; }
};

// f32, f16, bf16, fp8 (bytes, one scale per tensor, not counted), int8 (as the engine keeps it: bytes and one
// f32 scale per token and KV head for K and one for V, docs/numerics.md; of an MLA row for the latent and one
// for the rotated key), q8_0 and q4_0 (llama.cpp's blocks of 32 with an f16 scale: 8.5 and 4.5 bits).
// kInvalidArgument lists the names.
Result<KvFormat> parse_kv_format(std::string_view name);

}  // namespace kvasir
