#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/quant/format.h"
#include "kernels/quant_codec.h"

// Plain C++ access to packed blocks: what packing, embedding look-ups and the scalar reference share. Not for
// files built for one instruction set.
namespace kvasir::quant {

// The stored code at byte `byte` of quad `quad`.
template <class F>
inline uint8_t code_at(const uint8_t* packed, uint32_t quad, uint32_t byte) {
  if constexpr (F::kBits == 8) {
    return packed[quad * kQuadBytes + byte];
  } else {
    constexpr bool kLow4 = F::kBits >= 4;
    const uint32_t bit_pair = quad % 4 * 2;
    uint32_t code = kLow4 ? packed[quad % 4 * kQuadBytes + byte] >> (quad / 4 * 4) & 15u
                          : packed[quad / 4 * kQuadBytes + byte] >> bit_pair & 3u;
    const uint8_t* high = packed + (kLow4 ? 4 : 2) * kQuadBytes;
    if constexpr (F::kBits == 6) code |= (high[quad / 4 * kQuadBytes + byte] >> bit_pair & 3u) << 4;
    if constexpr (F::kBits == 5) code |= (high[byte] >> quad & 1u) << 4;
    if constexpr (F::kBits == 3) code |= (high[byte] >> quad & 1u) << 2;
    return static_cast<uint8_t>(code);
  }
}

// What a stored code stands for, zero point still inside.
template <class F>
inline uint8_t code_value(uint8_t code) {
  if constexpr (F::kCodebook == Codebook::kIq4Nl) return kIq4NlCodes[code];
  if constexpr (F::kCodebook == Codebook::kMxfp4) return kMxfp4Codes[code];
  return code;
}

// Writes the bit planes of one block from its 512 codes in quad order. `packed` must be zero before.
template <class F>
inline void pack_codes(const uint8_t* codes, uint8_t* packed) {
  const auto put = [&](uint32_t row, uint32_t quad, uint32_t take_shift, uint32_t mask, uint32_t shift) {
    uint8_t* to = packed + row * kQuadBytes;
    const uint8_t* from = codes + quad * kQuadBytes;
    for (uint32_t i = 0; i < kQuadBytes; ++i)
      to[i] |= static_cast<uint8_t>((from[i] >> take_shift & mask) << shift);
  };
  for (uint32_t quad = 0; quad < kQuads; ++quad) {
    const uint32_t bit_pair = quad % 4 * 2;
    if constexpr (F::kBits == 8) put(quad, quad, 0, 0xFF, 0);
    if constexpr (F::kBits >= 4 && F::kBits < 8) put(quad % 4, quad, 0, 15, quad / 4 * 4);
    if constexpr (F::kBits < 4) put(quad / 4, quad, 0, 3, bit_pair);
    if constexpr (F::kBits == 6) put(4 + quad / 4, quad, 4, 3, bit_pair);
    if constexpr (F::kBits == 5) put(4, quad, 4, 1, quad);
    if constexpr (F::kBits == 3) put(2, quad, 2, 1, quad);
  }
}

inline float load_half(const uint8_t* p) {
  uint16_t h;
  std::memcpy(&h, p, sizeof h);
  return half_to_float(h);
}

// Half of 2^(e - 127): the entries of kMxfp4Codes are doubled.
inline float load_e8m0_half(uint8_t e) {
  const uint32_t bits = e < 2 ? uint32_t{0x00200000} << e : static_cast<uint32_t>(e - 1) << 23;
  float f;
  std::memcpy(&f, &bits, sizeof f);
  return f;
}

// Scale, and minimum with the sign it is added with, of group `g` of block `b` for output `c` of the panel.
// Both are exact in f32.
struct ScaleMin {
  float scale = 0;
  float min = 0;
};

template <class F>
inline ScaleMin scale_at(const Chunk<F>& chunk, uint32_t b, uint32_t g, uint32_t c) {
  const uint8_t* s = chunk.scales(b);
  ScaleMin out;
  if constexpr (F::kScale == ScaleKind::kHalf) {
    out.scale = load_half(s + 2 * c);
    if constexpr (F::kHasMin) out.min = load_half(s + 32 + 2 * c);
  } else if constexpr (F::kScale == ScaleKind::kE8M0) {
    out.scale = load_e8m0_half(s[c]);
  } else {
    const uint8_t sub = s[g * 16 + c];
    const float d = load_half(chunk.header + 2 * c);
    if constexpr (F::kScale == ScaleKind::kSubS8)
      out.scale = d * static_cast<float>(static_cast<int8_t>(sub));
    if constexpr (F::kScale == ScaleKind::kSubU8) out.scale = d * static_cast<float>(sub);
    if constexpr (F::kScale == ScaleKind::kNibbles) out.scale = d * static_cast<float>(sub & 15);
    if constexpr (F::kHasMin) {
      const uint8_t m = F::kScale == ScaleKind::kNibbles ? sub >> 4 : s[(F::kGroups + g) * 16 + c];
      out.min = load_half(chunk.header + 32 + 2 * c) * static_cast<float>(m);
    }
  }
  if constexpr (F::kMin == MinKind::kSubtract) out.min = -out.min;
  return out;
}

}  // namespace kvasir::quant
