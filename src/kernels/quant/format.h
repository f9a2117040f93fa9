#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/matrix.h"

// The packed layout of quantised weights, "N16K4". A panel holds 16 outputs over all K inputs, cut into
// chunks of 256 inputs (the last one shorter when K is not a multiple of 256) of `blocks` = 8 or fewer blocks
// of 32 inputs:
//
//   header  kHeaderBytes: f16 d (and dmin) of the 16 outputs, for formats with two levels of scales
//   per block:
//     scales  kScaleBytes: scales of the 16 outputs (once per group), then their minimums
//     codes   kCodeBytes: unsigned codes of 16 outputs x 32 inputs, as bit planes of 64-byte rows
//   padding to a multiple of 64 bytes
//
// A kernel reads a panel strictly forwards: anything else costs a third of the memory's bandwidth.
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
  static constexpr size_t kScaleBytes = Scale == ScaleKind::kHalf      ? (kHasMin ? 64 : 32)
                                        : Scale == ScaleKind::kNibbles ? 16 * Groups
                                                                       : 16 * Groups * (kHasMin ? 2 : 1);
  static constexpr size_t kHeaderBytes = kTwoLevels ? 64 : 0;
  static constexpr size_t kBlockBytes = kScaleBytes + kCodeBytes;
  static constexpr size_t kFullChunkBytes = (kBlocksPerChunk * kBlockBytes + kHeaderBytes + 63) / 64 * 64;

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

// Where a chunk's parts are. Always inlined: these headers are also used by files built for one instruction
// set.
template <class F, class Byte = const uint8_t>
struct Chunk {
  Byte* data;
  uint32_t blocks;

  [[gnu::always_inline]] Byte* header() const { return data; }
  [[gnu::always_inline]] Byte* scales(uint32_t b) const {
    return data + F::kHeaderBytes + b * F::kBlockBytes;
  }
  [[gnu::always_inline]] Byte* codes(uint32_t b) const { return scales(b) + F::kScaleBytes; }
  [[gnu::always_inline]] size_t bytes() const {
    return (blocks * F::kBlockBytes + F::kHeaderBytes + 63) / 64 * 64;
  }
};

// The chunk that begins at block `first` of a panel of `k_blocks` blocks.
template <class F, class Byte>
[[gnu::always_inline]] inline Chunk<F, Byte> chunk_at(Byte* panel, uint32_t k_blocks, uint32_t first) {
  const uint32_t left = k_blocks - first;
  return {panel + first / kBlocksPerChunk * F::kFullChunkBytes,
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
