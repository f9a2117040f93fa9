#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace kvasir {

// How K and V are stored: halves, or bytes with one f32 scale per token and KV head for K and one for V
// (docs/numerics.md, rule 4).
enum class KvType : uint8_t { kF16, kInt8 };

std::string_view kv_type_name(KvType type);  // "f16", "int8"

// The names above and vLLM's: auto (f16), fp16, float16, int8_per_token_head. The error lists them.
Result<KvType> parse_kv_type(std::string_view name);

constexpr size_t kv_element_bytes(KvType type) {
  return type == KvType::kInt8 ? 1 : 2;
}
// Bytes that a token of one KV head keeps beside its K and V.
constexpr size_t kv_scale_bytes(KvType type) {
  return type == KvType::kInt8 ? 2 * sizeof(float) : 0;
}

}  // namespace kvasir
