#include "perf/weight_format.h"

#include <fmt/format.h>

#include <iterator>
#include <utility>

#include "base/dtype.h"
#include "base/kv_type.h"
#include "perf/names.h"

namespace kvasir {
namespace {

struct Format {
  std::string_view name;
  double bits;
};

// Other names of storage types, and what is no GGUF type.
constexpr std::pair<std::string_view, std::string_view> kAliases[] = {
    {"fp32", "F32"}, {"float32", "F32"}, {"fp16", "F16"}, {"float16", "F16"}, {"bfloat16", "BF16"}};
constexpr Format kPlain[] = {{"int8", 8}, {"fp8", 8}, {"int4", 4}, {"fp4", 4}};

// https://github.com/ggml-org/llama.cpp/blob/master/tools/quantize/README.md, "meta-llama/Llama-3.1-8B".
constexpr Format kMixtures[] = {
    {"IQ1_S", 2.0042},  {"IQ1_M", 2.1460},   {"IQ2_XXS", 2.3824}, {"IQ2_XS", 2.5882}, {"IQ2_S", 2.7403},
    {"IQ2_M", 2.9294},  {"IQ3_XXS", 3.2548}, {"IQ3_XS", 3.4977},  {"IQ3_S", 3.6606},  {"IQ3_M", 3.7628},
    {"IQ4_XS", 4.4597}, {"Q2_K_S", 2.9697},  {"Q3_K_S", 3.6429},  {"Q3_K_L", 4.2979}, {"Q4_K_S", 4.6672},
    {"Q4_K_M", 4.8944}, {"Q5_K_S", 5.5704},  {"Q5_K_M", 5.7036},
};

double bits_of(const DTypeInfo& type) {
  return 8.0 * type.block_bytes / type.block_elements;
}

// Of a KV cache: bits of a value, and the scales beside them.
constexpr uint32_t kInt8Scales = kv_scale_bytes(KvType::kInt8);
const struct {
  std::string_view name;
  std::string_view means;
  uint32_t scale_bytes, mla_scale_bytes;
  double bits;
} kKv[] = {
    {"f16", "f16", 0, 0, 8.0 * kv_element_bytes(KvType::kF16)},
    {"auto", "f16", 0, 0, 8.0 * kv_element_bytes(KvType::kF16)},
    {"fp16", "f16", 0, 0, 8.0 * kv_element_bytes(KvType::kF16)},
    {"float16", "f16", 0, 0, 8.0 * kv_element_bytes(KvType::kF16)},
    {"bf16", "bf16", 0, 0, 16},
    {"bfloat16", "bf16", 0, 0, 16},
    {"f32", "f32", 0, 0, 32},
    {"fp32", "f32", 0, 0, 32},
    {"float32", "f32", 0, 0, 32},
    {"int8", "int8", kInt8Scales, kInt8Scales, 8.0 * kv_element_bytes(KvType::kInt8)},
    {"int8_per_token_head", "int8", kInt8Scales, kInt8Scales, 8.0 * kv_element_bytes(KvType::kInt8)},
    {"fp8", "fp8", 0, 0, 8},
    {"q8_0", "q8_0", 0, 0, 8.5},
    {"q4_0", "q4_0", 0, 0, 4.5},
};

}  // namespace

Result<WeightFormat> parse_weight_format(std::string_view name) {
  std::string known;
  const std::string plain = plain_name(name);
  const auto matches = [&](std::string_view other) {
    known += known.empty() ? "" : ", ";
    known += other;
    return plain == plain_name(other);
  };
  for (const auto& [alias, type] : kAliases)
    if (plain == alias) return parse_weight_format(type);
  for (const DTypeInfo& type : dtype_table())
    if (matches(type.name)) return WeightFormat{std::string(type.name), bits_of(type)};
  for (const auto& list : {std::pair(std::begin(kPlain), std::end(kPlain)),
                           std::pair(std::begin(kMixtures), std::end(kMixtures))})
    for (const Format* f = list.first; f != list.second; ++f)
      if (matches(f->name)) return WeightFormat{std::string(f->name), f->bits};
  return invalid_argument(fmt::format("unknown weight format '{}': choose one of {}", name, known));
}

Result<KvFormat> parse_kv_format(std::string_view name) {
  std::string known;
  for (const auto& row : kKv) {
    if (row.name == name)
      return KvFormat{std::string(row.means), row.bits, row.scale_bytes, row.mla_scale_bytes};
    known += known.empty() ? "" : ", ";
    known += row.name;
  }
  return invalid_argument(fmt::format("unknown KV type '{}': choose one of {}", name, known));
}

}  // namespace kvasir
