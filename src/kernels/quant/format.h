#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/matrix.h"

// The packed layout of quantised weights, "N16K4". A panel holds 16 outputs over all K inputs:
//
//   headers  kHeaderBytes per chunk of 256 inputs: f16 d (and dmin) of the 16 outputs, for formats with two
//            levels of scales
//   pairs    of blocks of 32 inputs (the last may hold one block only):
//     scales   2 x kScaleBytes: scales of the 16 outputs (once per group), then their minimums
//     codes    kCodeBytes per block: unsigned codes of 16 outputs x 32 inputs, as bit planes of 64-byte rows
//
// Pairs follow each other without a gap and every row of codes is one cache line: kernels that read strictly
// forwards, each load instruction by a constant stride, keep the hardware's prefetchers in step. Anything
// else was measured to cost a third of the memory's bandwidth and more.
//
// Unpacked, a block is eight rows ("quads") of 64 bytes: byte 4 * c + j of quad i is the code of output c at
// input 4 * i + j, the operand order of VPDPBUSD. The planes of the stored bits, lowest bits first:
//
//   4-bit plane, 4 rows: row i holds quad i in its low halves and quad i + 4 in its high halves
//   2-bit plane, 2 rows: row r holds quads 4 * r .. 4 * r + 3 in bits 0-1, 2-3, 4-5, 6-7
//   1-bit plane, 1 row:  bit i is quad i
//   8 bits, 8 rows: the quads themselves
//
// Value of a code: scale * (code - zero) + minimum, or scale * (codebook[code] - zero) + minimum.
namespace kvasir::quant {

inline constexpr uint32_t kBlocksPerChunk = 8;
inline constexpr uint32_t kQuads = 8;       // rows of an unpacked block
inline constexpr uint32_t kQuadBytes = 64;  // bytes of such a row
inline constexpr uint32_t kBlockCodes = kQuads * kQuadBytes;

enum class ScaleKind : uint8_t {
  kHalf,     // f16 per block
  kE8M0,     // the exponent byte of a power of two per block, doubled values in the codebook
  kSubU8,    // unsigned byte per group times f16 d per chunk
  kSubS8,    // signed byte per group times f16 d per chunk
  kNibbles,  // byte per group: scale in its low half, minimum in its high half, times f16 d and dmin per
             // chunk
};
enum class MinKind : uint8_t { kNone, kAdd, kSubtract };
enum class Codebook : uint8_t { kNone, kIq4Nl, kMxfp4 };

inline constexpr int kNoZero = 0;

// What a packed format is made of. `Groups`: scales per block of 32 inputs. `ZeroShift`: the zero point is 1
// << ZeroShift, kNoZero for none.
template <int Bits, int Groups, int ZeroShift, ScaleKind Scale, MinKind Min, Codebook Book = Codebook::kNone>
struct PackedFormat {
  static constexpr int kBits = Bits;
  static constexpr int kGroups = Groups;
  static constexpr int kZeroShift = ZeroShift;
  static constexpr int kZero = ZeroShift == kNoZero ? 0 : 1 << ZeroShift;
  static constexpr ScaleKind kScale = Scale;
  static constexpr MinKind kMin = Min;
  static constexpr Codebook kCodebook = Book;

  static constexpr bool kHasMin = Min != MinKind::kNone;
  static constexpr bool kTwoLevels = Scale != ScaleKind::kHalf && Scale != ScaleKind::kE8M0;
  static constexpr size_t kCodeBytes = size_t{kQuadBytes} * Bits;
  static constexpr size_t kScaleBytes = Scale == ScaleKind::kHalf && kHasMin ? 64
                                        : Scale == ScaleKind::kSubU8         ? 32 * Groups
                                                                             : 32;
  static constexpr size_t kHeaderBytes = kTwoLevels ? 64 : 0;
  static constexpr size_t kPairBytes = 2 * (kScaleBytes + kCodeBytes);
  static constexpr size_t kChunkBytes = kBlocksPerChunk / 2 * kPairBytes;  // without its header

  static_assert(Groups == 1 || Groups == 2);
  static_assert(Bits == 2 || Bits == 3 || Bits == 4 || Bits == 5 || Bits == 6 || Bits == 8);
};

using Q4_0 = PackedFormat<4, 1, 3, ScaleKind::kHalf, MinKind::kNone>;
using Q4_1 = PackedFormat<4, 1, kNoZero, ScaleKind::kHalf, MinKind::kAdd>;
using Q5_0 = PackedFormat<5, 1, 4, ScaleKind::kHalf, MinKind::kNone>;
using Q5_1 = PackedFormat<5, 1, kNoZero, ScaleKind::kHalf, MinKind::kAdd>;
using Q8_0 = PackedFormat<8, 1, 7, ScaleKind::kHalf, MinKind::kNone>;
using Q2_K = PackedFormat<2, 2, kNoZero, ScaleKind::kNibbles, MinKind::kSubtract>;
using Q3_K = PackedFormat<3, 2, 2, ScaleKind::kSubS8, MinKind::kNone>;
using Q4_K = PackedFormat<4, 1, kNoZero, ScaleKind::kSubU8, MinKind::kSubtract>;
using Q5_K = PackedFormat<5, 1, kNoZero, ScaleKind::kSubU8, MinKind::kSubtract>;
using Q6_K = PackedFormat<6, 2, 5, ScaleKind::kSubS8, MinKind::kNone>;
using IQ4_NL = PackedFormat<4, 1, 7, ScaleKind::kHalf, MinKind::kNone, Codebook::kIq4Nl>;
using MXFP4 = PackedFormat<4, 1, 4, ScaleKind::kE8M0, MinKind::kNone, Codebook::kMxfp4>;

// Codebooks with their zero point added, so that entries are unsigned like any code.
inline constexpr uint8_t kIq4NlCodes[16] = {1,   24,  45,  63,  79,  93,  106, 118,
                                            129, 141, 153, 166, 181, 197, 217, 241};
inline constexpr uint8_t kMxfp4Codes[16] = {16, 17, 18, 19, 20, 22, 24, 28, 16, 15, 14, 13, 12, 10, 8, 4};

// Where the parts of a chunk are: 256 inputs, or what is left of them. Always inlined: these headers are also
// used by files built for one instruction set.
template <class F, class Byte = const uint8_t>
struct Chunk {
  Byte* header;
  Byte* pairs;
  uint32_t blocks;

  [[gnu::always_inline]] Byte* scales(uint32_t b) const {
    return pairs + b / 2 * F::kPairBytes + b % 2 * F::kScaleBytes;
  }
  [[gnu::always_inline]] Byte* codes(uint32_t b) const {
    return pairs + b / 2 * F::kPairBytes + 2 * F::kScaleBytes + b % 2 * F::kCodeBytes;
  }
};

// Bytes of all headers of a panel of `k_blocks` blocks, and of the whole panel.
template <class F>
[[gnu::always_inline]] constexpr size_t header_bytes(size_t k_blocks) {
  return (k_blocks + kBlocksPerChunk - 1) / kBlocksPerChunk * F::kHeaderBytes;
}
template <class F>
[[gnu::always_inline]] constexpr size_t quant_panel_bytes(size_t k_blocks) {
  return header_bytes<F>(k_blocks) + (k_blocks + 1) / 2 * F::kPairBytes - k_blocks % 2 * F::kCodeBytes;
}

// The chunk that begins at block `first` of a panel of `k_blocks` blocks.
template <class F, class Byte>
[[gnu::always_inline]] inline Chunk<F, Byte> chunk_at(Byte* panel, uint32_t k_blocks, uint32_t first) {
  const uint32_t left = k_blocks - first;
  return {panel + first / kBlocksPerChunk * F::kHeaderBytes,
          panel + header_bytes<F>(k_blocks) + first / 2 * F::kPairBytes,
          left < kBlocksPerChunk ? left : kBlocksPerChunk};
}

// Calls fn(Format{}) for a quantised type; returns false, without a call, for the float types.
template <class Fn>
[[gnu::always_inline]] inline bool with_format(DType type, const Fn& fn) {
  switch (type) {
    case DType::kQ4_0:
      fn(Q4_0{});
      return true;
    case DType::kQ4_1:
      fn(Q4_1{});
      return true;
    case DType::kQ5_0:
      fn(Q5_0{});
      return true;
    case DType::kQ5_1:
      fn(Q5_1{});
      return true;
    case DType::kQ8_0:
      fn(Q8_0{});
      return true;
    case DType::kQ2_K:
      fn(Q2_K{});
      return true;
    case DType::kQ3_K:
      fn(Q3_K{});
      return true;
    case DType::kQ4_K:
      fn(Q4_K{});
      return true;
    case DType::kQ5_K:
      fn(Q5_K{});
      return true;
    case DType::kQ6_K:
      fn(Q6_K{});
      return true;
    case DType::kIQ4_NL:
      fn(IQ4_NL{});
      return true;
    case DType::kMXFP4:
      fn(MXFP4{});
      return true;
    case DType::kF32:
    case DType::kF16:
    case DType::kBF16:
      return false;
  }
  return false;
}

}  // namespace kvasir::quant
