#pragma once

#include <cstdint>
#include <cstring>

#include "kernels/quant/format.h"

// GGUF storage blocks as codes and scales. read_codes(F, s, b, out): the 32 codes of block `b` of storage
// block `s` (formats with 32 values per storage block have b = 0). write_scales(F, s, b, c, scales, header):
// its scales, and those of the storage block, as those of output `c` in a chunk. The field layouts are ggml's
// (ggml-common.h).
namespace kvasir::quant {

// Value j in the low half of byte j, value j + 16 in its high half.
inline void read_halves(const uint8_t* q, uint8_t* out) {
  for (int j = 0; j < 16; ++j) {
    out[j] = q[j] & 15;
    out[j + 16] = q[j] >> 4;
  }
}

// Bit j of 32 high bits belongs to value j.
inline void add_fifth_bits(const uint8_t* bits, uint8_t* out) {
  for (int i = 0; i < 4; ++i) {  // eight bits into the fifth bit of eight bytes, lowest first
    const uint64_t picked = bits[i] * uint64_t{0x0101010101010101} & 0x8040201008040201;
    const uint64_t fifth = ((picked + 0x7F7F7F7F7F7F7F7F) | picked) >> 3 & 0x1010101010101010;
    uint64_t values;
    std::memcpy(&values, out + 8 * i, sizeof values);
    values |= fifth;
    std::memcpy(out + 8 * i, &values, sizeof values);
  }
}

// Q4_K and Q5_K: each 32 bytes hold two blocks, low halves first.
inline void read_k_halves(const uint8_t* q, uint32_t b, uint8_t* out) {
  for (uint32_t l = 0; l < 32; ++l) out[l] = q[b / 2 * 32 + l] >> (b % 2 * 4) & 15;
}

// Q2_K and Q3_K: each 32 bytes hold four blocks, bit pair p of every byte belonging to the p-th.
inline void read_k_pairs(const uint8_t* q, uint32_t b, uint8_t* out) {
  for (uint32_t l = 0; l < 32; ++l) out[l] = q[b / 4 * 32 + l] >> (b % 4 * 2) & 3;
}

inline void read_codes(Q4_0, const uint8_t* s, uint32_t, uint8_t* out) {
  read_halves(s + 2, out);
}
inline void read_codes(IQ4_NL, const uint8_t* s, uint32_t, uint8_t* out) {
  read_halves(s + 2, out);
}
inline void read_codes(MXFP4, const uint8_t* s, uint32_t, uint8_t* out) {
  read_halves(s + 1, out);
}
inline void read_codes(Q4_1, const uint8_t* s, uint32_t, uint8_t* out) {
  read_halves(s + 4, out);
}
inline void read_codes(Q5_0, const uint8_t* s, uint32_t, uint8_t* out) {
  read_halves(s + 6, out);
  add_fifth_bits(s + 2, out);
}
inline void read_codes(Q5_1, const uint8_t* s, uint32_t, uint8_t* out) {
  read_halves(s + 8, out);
  add_fifth_bits(s + 4, out);
}
inline void read_codes(Q8_0, const uint8_t* s, uint32_t, uint8_t* out) {
  for (int j = 0; j < 32; ++j) out[j] = s[2 + j] ^ 0x80;
}
inline void read_codes(Q4_K, const uint8_t* s, uint32_t b, uint8_t* out) {
  read_k_halves(s + 16, b, out);
}
inline void read_codes(Q5_K, const uint8_t* s, uint32_t b, uint8_t* out) {
  read_k_halves(s + 48, b, out);
  for (uint32_t l = 0; l < 32; ++l) out[l] = static_cast<uint8_t>(out[l] | (s[16 + l] >> b & 1) << 4);
}
inline void read_codes(Q6_K, const uint8_t* s, uint32_t b, uint8_t* out) {
  const uint8_t* low = s + b / 4 * 64 + b % 2 * 32;
  const uint8_t* high = s + 128 + b / 4 * 32;
  for (uint32_t l = 0; l < 32; ++l)
    out[l] = static_cast<uint8_t>((low[l] >> (b / 2 % 2 * 4) & 15) | (high[l] >> (b % 4 * 2) & 3) << 4);
}
inline void read_codes(Q2_K, const uint8_t* s, uint32_t b, uint8_t* out) {
  read_k_pairs(s + 16, b, out);
}
inline void read_codes(Q3_K, const uint8_t* s, uint32_t b, uint8_t* out) {
  read_k_pairs(s + 32, b, out);
  for (uint32_t l = 0; l < 32; ++l) out[l] = static_cast<uint8_t>(out[l] | (s[l] >> b & 1) << 2);
}

// The integer scales and minimums of the K formats: eight 6-bit pairs in 12 bytes (Q4_K, Q5_K) ...
inline uint8_t k_scale(const uint8_t* p, uint32_t b) {
  return b < 4 ? p[b] & 63 : static_cast<uint8_t>((p[b + 4] & 15) | (p[b - 4] >> 6) << 4);
}
inline uint8_t k_min(const uint8_t* p, uint32_t b) {
  return b < 4 ? p[b + 4] & 63 : static_cast<uint8_t>(p[b + 4] >> 4 | (p[b] >> 6) << 4);
}
// ... and sixteen 6-bit scales, offset by 32, in 12 bytes (Q3_K).
inline uint8_t q3_k_scale(const uint8_t* p, uint32_t g) {
  const int low = p[g % 8] >> (g / 8 * 4) & 15;
  const int high = p[8 + g % 4] >> (g / 4 * 2) & 3;
  return static_cast<uint8_t>((low | high << 4) - 32);
}

template <class F>
inline void write_scales(F, const uint8_t* s, [[maybe_unused]] uint32_t b, uint32_t c, uint8_t* scales,
                         [[maybe_unused]] uint8_t* header) {
  if constexpr (F::kScale == ScaleKind::kHalf) {
    std::memcpy(scales + 2 * c, s, 2);
    if constexpr (F::kHasMin) std::memcpy(scales + 32 + 2 * c, s + 2, 2);
  } else if constexpr (F::kScale == ScaleKind::kE8M0) {
    scales[c] = s[0];
  } else if constexpr (F::kScale == ScaleKind::kSubU8) {  // Q4_K, Q5_K
    scales[c] = k_scale(s + 4, b);
    scales[16 + c] = k_min(s + 4, b);
    std::memcpy(header + 2 * c, s, 2);
    std::memcpy(header + 32 + 2 * c, s + 2, 2);
  } else if constexpr (F::kScale == ScaleKind::kNibbles) {  // Q2_K
    for (uint32_t g = 0; g < 2; ++g) scales[16 * g + c] = s[2 * b + g];
    std::memcpy(header + 2 * c, s + 80, 2);
    std::memcpy(header + 32 + 2 * c, s + 82, 2);
  } else if constexpr (F::kBits == 6) {  // Q6_K
    for (uint32_t g = 0; g < 2; ++g) scales[16 * g + c] = s[192 + 2 * b + g];
    std::memcpy(header + 2 * c, s + 208, 2);
  } else {  // Q3_K
    for (uint32_t g = 0; g < 2; ++g) scales[16 * g + c] = q3_k_scale(s + 96, 2 * b + g);
    std::memcpy(header + 2 * c, s + 108, 2);
  }
}

}  // namespace kvasir::quant
