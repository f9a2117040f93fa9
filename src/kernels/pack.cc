#include <cstring>

#include "base/check.h"
#include "kernels/quant/gguf_block.h"
#include "kernels/quant/packed_block.h"
#include "kernels/quant_codec.h"
#include "kernels/table.h"

namespace kvasir {
namespace {

using namespace quant;

// Far beyond any model; keeps two panels' headers within the kernels' scratch.
constexpr uint32_t kMaxInputs = 1 << 21;
static_assert(2 * header_bytes<Q4_K>(kMaxInputs / kGroup) <= kLinearScratchBytes);

size_t align64(size_t bytes) {
  return (bytes + 63) / 64 * 64;
}

// One panel from `columns` rows of the GGUF matrix, row_bytes apart; `panel` is zero before.
template <class F>
void pack_quant_panel(const uint8_t* rows, size_t row_bytes, const DTypeInfo& info, uint32_t columns,
                      uint32_t k, uint8_t* panel) {
  const uint32_t k_blocks = k / kGroup;
  const uint32_t per_storage = info.block_elements / kGroup;
  for (uint32_t first = 0; first < k_blocks; first += kBlocksPerChunk) {
    const Chunk<F, uint8_t> chunk = chunk_at<F>(panel, k_blocks, first);
    for (uint32_t b = 0; b < chunk.blocks; ++b) {
      alignas(64) uint8_t codes[kBlockCodes] = {};
      const uint32_t kb = first + b;
      for (uint32_t c = 0; c < columns; ++c) {
        const uint8_t* storage = rows + c * row_bytes + kb / per_storage * size_t{info.block_bytes};
        uint8_t column[kGroup];
        read_codes(F{}, storage, kb % per_storage, column);
        for (uint32_t i = 0; i < kQuads; ++i) std::memcpy(codes + i * kQuadBytes + 4 * c, column + 4 * i, 4);
        write_scales(F{}, storage, kb % per_storage, c, chunk.scales(b), chunk.header);
      }
      pack_codes<F>(codes, chunk.codes(b));
    }
  }
}

template <class T>
void pack_float_panel(const std::byte* rows, uint32_t columns, uint32_t k, std::byte* panel) {
  for (uint32_t c = 0; c < columns; ++c)
    for (uint32_t i = 0; i < k; ++i)
      std::memcpy(panel + (size_t{i} * kPanelCols + c) * sizeof(T), rows + (size_t{c} * k + i) * sizeof(T),
                  sizeof(T));
}

template <class F>
void unpack_quant_column(const uint8_t* panel, uint32_t k, uint32_t c, float* dst) {
  const uint32_t k_blocks = k / kGroup;
  for (uint32_t kb = 0; kb < k_blocks; ++kb) {
    const Chunk<F> chunk = chunk_at<F>(panel, k_blocks, kb / kBlocksPerChunk * kBlocksPerChunk);
    const uint32_t b = kb % kBlocksPerChunk;
    constexpr uint32_t kWidth = kGroup / F::kGroups;
    for (uint32_t g = 0; g < F::kGroups; ++g) {
      const ScaleMin s = scale_at<F>(chunk, b, g, c);
      for (uint32_t i = g * kWidth; i < (g + 1) * kWidth; ++i) {
        const int code = code_value<F>(code_at<F>(chunk.codes(b), i / 4, 4 * c + i % 4)) - F::kZero;
        const float scaled = s.scale * static_cast<float>(code);
        dst[kb * kGroup + i] = F::kHasMin ? scaled + s.min : scaled;
      }
    }
  }
}

}  // namespace

bool can_pack(DType type, uint32_t k) {
  return k > 0 && k <= kMaxInputs && k % dtype_info(type).block_elements == 0;
}

size_t packed_panel_bytes(DType type, uint32_t k) {
  CHECK(can_pack(type, k));
  size_t bytes = 0;
  const bool quantised = with_format(type, [&]<class F>(F) { bytes = quant_panel_bytes<F>(k / kGroup); });
  return quantised ? bytes : align64(size_t{kPanelCols} * dtype_info(type).block_bytes * k);
}

void pack_panels(DType type, const std::byte* src, uint32_t n, uint32_t k, uint32_t begin, uint32_t end,
                 std::byte* dst) {
  const size_t bytes = packed_panel_bytes(type, k);
  const size_t row_bytes = dtype_bytes(type, k);
  const DTypeInfo& info = dtype_info(type);
  for (uint32_t p = begin; p < end; ++p) {
    const uint32_t first = p * kPanelCols;
    const uint32_t columns = n - first < kPanelCols ? n - first : kPanelCols;
    const std::byte* rows = src + first * row_bytes;
    std::byte* panel = dst + p * bytes;
    std::memset(panel, 0, bytes);
    const bool quantised = with_format(type, [&]<class F>(F) {
      pack_quant_panel<F>(reinterpret_cast<const uint8_t*>(rows), row_bytes, info, columns, k,
                          reinterpret_cast<uint8_t*>(panel));
    });
    if (quantised) continue;
    if (info.block_bytes == 4)
      pack_float_panel<uint32_t>(rows, columns, k, panel);
    else
      pack_float_panel<uint16_t>(rows, columns, k, panel);
  }
}

void unpack_column(const PackedMatrix& m, uint32_t column, float* dst) {
  CHECK(column < m.n);
  const auto* panel = reinterpret_cast<const uint8_t*>(m.panel(column / kPanelCols));
  const uint32_t c = column % kPanelCols;
  if (with_format(m.type, [&]<class F>(F) { unpack_quant_column<F>(panel, m.k, c, dst); })) return;
  const size_t width = dtype_info(m.type).block_bytes;
  for (uint32_t i = 0; i < m.k; ++i) {
    const uint8_t* value = panel + (size_t{i} * kPanelCols + c) * width;
    dequantize(m.type, reinterpret_cast<const std::byte*>(value), 1, dst + i);
  }
}

size_t quant_rows_bytes(uint32_t m, uint32_t k) {
  const size_t rows = m;
  const size_t groups = k / kGroup;
  return align64(rows * k) + 3 * align64(rows * groups * 4) + align64(rows * groups * 8);
}

QuantRows carve_quant_rows(std::byte* memory, uint32_t m, uint32_t k) {
  const size_t rows = m;
  const size_t groups = k / kGroup;
  QuantRows out;
  const auto take = [&](size_t bytes) {
    std::byte* p = memory;
    memory += align64(bytes);
    return p;
  };
  out.q = reinterpret_cast<int8_t*>(take(rows * k));
  out.d = reinterpret_cast<float*>(take(rows * groups * 4));
  out.ds = reinterpret_cast<float*>(take(rows * groups * 4));
  out.nsum = reinterpret_cast<int32_t*>(take(rows * groups * 4));
  out.nsum16 = reinterpret_cast<int32_t*>(take(rows * groups * 8));
  out.k = k;
  return out;
}

QuantRows advance_groups(QuantRows rows, size_t groups) {
  rows.q += groups * kGroup;
  rows.d += groups;
  rows.ds += groups;
  rows.nsum += groups;
  rows.nsum16 += 2 * groups;
  return rows;
}

std::string_view linear_kernel_name(Isa isa, DType type) {
  CHECK(find_dtype(static_cast<uint32_t>(type)) != nullptr);
  return isa_name(isa);
}

}  // namespace kvasir
