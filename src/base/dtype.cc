#include "base/dtype.h"

#include "base/check.h"

namespace kvasir {
namespace {

constexpr DTypeInfo kTable[] = {
    {DType::kF32, "F32", 1, 4},       {DType::kF16, "F16", 1, 2},         {DType::kBF16, "BF16", 1, 2},
    {DType::kQ4_0, "Q4_0", 32, 18},   {DType::kQ4_1, "Q4_1", 32, 20},     {DType::kQ5_0, "Q5_0", 32, 22},
    {DType::kQ5_1, "Q5_1", 32, 24},   {DType::kQ8_0, "Q8_0", 32, 34},     {DType::kQ2_K, "Q2_K", 256, 84},
    {DType::kQ3_K, "Q3_K", 256, 110}, {DType::kQ4_K, "Q4_K", 256, 144},   {DType::kQ5_K, "Q5_K", 256, 176},
    {DType::kQ6_K, "Q6_K", 256, 210}, {DType::kIQ4_NL, "IQ4_NL", 32, 18}, {DType::kMXFP4, "MXFP4", 32, 17},
};

}  // namespace

std::span<const DTypeInfo> dtype_table() {
  return kTable;
}

const DTypeInfo* find_dtype(uint32_t ggml_type) {
  for (const DTypeInfo& info : kTable)
    if (static_cast<uint32_t>(info.type) == ggml_type) return &info;
  return nullptr;
}

const DTypeInfo& dtype_info(DType type) {
  const DTypeInfo* info = find_dtype(static_cast<uint32_t>(type));
  CHECK(info != nullptr);
  return *info;
}

size_t dtype_bytes(DType type, size_t elements) {
  const DTypeInfo& info = dtype_info(type);
  CHECK(elements % info.block_elements == 0);
  return elements / info.block_elements * info.block_bytes;
}

}  // namespace kvasir
