#include "models/own_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "base/check.h"
#include "kernels/quant_codec.h"
#include "kernels/table.h"

namespace kvasir {
namespace {

// A storage block of Q8_0, as GGUF has it.
struct Block {
  uint16_t d;
  int8_t q[kGroup];
};
static_assert(sizeof(Block) == 34);

Block quantize_block(const float* x) {
  float most = 0;
  for (uint32_t i = 0; i < kGroup; ++i) most = std::max(most, std::fabs(x[i]));
  Block block{.d = float_to_half(most / 127), .q = {}};
  const float d = half_to_float(block.d);
  if (!(d > 0)) return block;
  for (uint32_t i = 0; i < kGroup; ++i)
    block.q[i] = static_cast<int8_t>(std::clamp(std::nearbyint(x[i] / d), -127.0f, 127.0f));
  return block;
}

}  // namespace

OwnMatrix OwnMatrix::q8_0(std::span<const float> values, uint32_t n, uint32_t k) {
  CHECK(k % kGroup == 0 && values.size() == size_t{n} * k);
  std::vector<Block> blocks(values.size() / kGroup);
  for (size_t b = 0; b < blocks.size(); ++b) blocks[b] = quantize_block(values.data() + b * kGroup);
  return pack(DType::kQ8_0, std::as_bytes(std::span(blocks)), n, k);
}

OwnMatrix OwnMatrix::f16(std::span<const float> values, uint32_t n, uint32_t k) {
  CHECK(values.size() == size_t{n} * k);
  std::vector<uint16_t> halves(values.size());
  std::transform(values.begin(), values.end(), halves.begin(), float_to_half);
  return pack(DType::kF16, std::as_bytes(std::span(halves)), n, k);
}

OwnMatrix OwnMatrix::pack(DType type, std::span<const std::byte> rows, uint32_t n, uint32_t k) {
  OwnMatrix matrix;
  PackedMatrix& packed = matrix.packed_;
  packed = {.type = type, .n = n, .k = k, .panel_bytes = packed_panel_bytes(type, k), .data = nullptr};
  matrix.memory_ = AlignedBuffer(packed.panels() * packed.panel_bytes);
  pack_panels(type, rows.data(), n, k, 0, packed.panels(), matrix.memory_.data());
  packed.data = matrix.memory_.data();
  return matrix;
}

}  // namespace kvasir
