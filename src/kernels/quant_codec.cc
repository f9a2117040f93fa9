#include "kernels/quant_codec.h"

#include <array>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace kvasir {
namespace {

// Every decoder below takes one storage block `s` and writes its values in order to `y`. The order of the
// float operations is part of the contract: it is the one of the `gguf` package, so results are equal to the
// bit.

constexpr std::array<int8_t, 16> kIq4NlValues = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                 1,    13,   25,  38,  53,  69,  89,  113};

// E2M1 values (OCP Microscaling Formats 1.0, table 6), doubled so that they are integers.
constexpr std::array<int8_t, 16> kE2m1Doubled = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

uint16_t load_u16(const uint8_t* p) {
  return static_cast<uint16_t>(p[0] | p[1] << 8);
}

uint32_t load_u32(const uint8_t* p) {
  return static_cast<uint32_t>(load_u16(p)) | static_cast<uint32_t>(load_u16(p + 2)) << 16;
}

float load_half(const uint8_t* p) {
  return half_to_float(load_u16(p));
}

// Half the E8M0 scale 2^(e-127): the other factor of two is in kE2m1Doubled. e = 0 and 1 give subnormals.
float half_of_e8m0(uint8_t e) {
  return std::bit_cast<float>(e < 2 ? uint32_t{0x00200000} << e : static_cast<uint32_t>(e - 1) << 23);
}

void decode_f16(const uint8_t* s, float* y) {
  *y = load_half(s);
}

void decode_bf16(const uint8_t* s, float* y) {
  *y = bf16_to_float(load_u16(s));
}

// The 4-bit formats of 32 values keep value j in the low half of byte j and value j + 16 in its high half.
void decode_q4_0(const uint8_t* s, float* y) {
  const float d = load_half(s);
  for (int j = 0; j < 16; ++j) {
    const int q = s[2 + j];
    y[j] = d * static_cast<float>((q & 15) - 8);
    y[j + 16] = d * static_cast<float>((q >> 4) - 8);
  }
}

void decode_q4_1(const uint8_t* s, float* y) {
  const float d = load_half(s);
  const float m = load_half(s + 2);
  for (int j = 0; j < 16; ++j) {
    const int q = s[4 + j];
    y[j] = d * static_cast<float>(q & 15) + m;
    y[j + 16] = d * static_cast<float>(q >> 4) + m;
  }
}

// The 5-bit formats add bit j of a 32-bit word to value j.
void decode_q5_0(const uint8_t* s, float* y) {
  const float d = load_half(s);
  const uint32_t high = load_u32(s + 2);
  for (int j = 0; j < 16; ++j) {
    const int q = s[6 + j];
    y[j] = d * static_cast<float>(((q & 15) | static_cast<int>(high >> j & 1) << 4) - 16);
    y[j + 16] = d * static_cast<float>(((q >> 4) | static_cast<int>(high >> (j + 16) & 1) << 4) - 16);
  }
}

void decode_q5_1(const uint8_t* s, float* y) {
  const float d = load_half(s);
  const float m = load_half(s + 2);
  const uint32_t high = load_u32(s + 4);
  for (int j = 0; j < 16; ++j) {
    const int q = s[8 + j];
    y[j] = d * static_cast<float>((q & 15) | static_cast<int>(high >> j & 1) << 4) + m;
    y[j + 16] = d * static_cast<float>((q >> 4) | static_cast<int>(high >> (j + 16) & 1) << 4) + m;
  }
}

void decode_q8_0(const uint8_t* s, float* y) {
  const float d = load_half(s);
  for (int j = 0; j < 32; ++j) y[j] = static_cast<float>(static_cast<int8_t>(s[2 + j])) * d;
}

// The K formats hold 256 values in sub-blocks with integer scales. Their 2-bit fields: each run of 32 bytes
// holds 128 values, bit pair p of byte l being value 32 * p + l.

// Q2_K: 16 bytes of scale (low half) and minimum (high half), 64 bytes of 2-bit values, d, dmin.
void decode_q2_k(const uint8_t* s, float* y) {
  const float d = load_half(s + 80);
  const float dmin = load_half(s + 82);
  for (int g = 0; g < 16; ++g) {
    const float dl = d * static_cast<float>(s[g] & 15);
    const float ml = dmin * static_cast<float>(s[g] >> 4);
    const uint8_t* q = s + 16 + g / 8 * 32 + g % 2 * 16;
    const int shift = g / 2 % 4 * 2;
    for (int l = 0; l < 16; ++l) y[16 * g + l] = dl * static_cast<float>(q[l] >> shift & 3) - ml;
  }
}

// Q3_K: 32 bytes of high bits (a clear bit subtracts 4), 64 bytes of 2-bit values, 16 scales of 6 bits in 12
// bytes, d.
void decode_q3_k(const uint8_t* s, float* y) {
  const float d = load_half(s + 108);
  const uint8_t* packed = s + 96;
  for (int g = 0; g < 16; ++g) {
    const int low = packed[g % 8] >> (g / 8 * 4) & 15;
    const int high = packed[8 + g % 4] >> (g / 4 * 2) & 3;
    const float dl = d * static_cast<float>((low | high << 4) - 32);
    const uint8_t* q = s + 32 + g / 8 * 32 + g % 2 * 16;
    const uint8_t* mask = s + g % 2 * 16;
    const int shift = g / 2 % 4 * 2;
    for (int l = 0; l < 16; ++l)
      y[16 * g + l] = dl * static_cast<float>((q[l] >> shift & 3) - ((mask[l] >> (g / 2) & 1) ^ 1) * 4);
  }
}

struct ScaleMin {
  float scale;
  float min;
};

// Scale and minimum j of the eight 6-bit pairs that Q4_K and Q5_K pack into 12 bytes.
ScaleMin q4_k_scale_min(const uint8_t* p, int j) {
  if (j < 4) return {static_cast<float>(p[j] & 63), static_cast<float>(p[j + 4] & 63)};
  return {static_cast<float>((p[j + 4] & 15) | (p[j - 4] >> 2 & 48)),
          static_cast<float>(p[j + 4] >> 4 | (p[j] >> 2 & 48))};
}

// Q4_K: d, dmin, packed scales; 128 bytes in which each run of 32 holds two sub-blocks, low halves first.
void decode_q4_k(const uint8_t* s, float* y) {
  const float d = load_half(s);
  const float dmin = load_half(s + 2);
  for (int g = 0; g < 8; ++g) {
    const ScaleMin sm = q4_k_scale_min(s + 4, g);
    const float dl = d * sm.scale;
    const float ml = dmin * sm.min;
    const uint8_t* q = s + 16 + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int l = 0; l < 32; ++l) y[32 * g + l] = dl * static_cast<float>(q[l] >> shift & 15) - ml;
  }
}

// Q5_K: as Q4_K with 32 bytes of fifth bits before the values; bit g of byte l belongs to value l of
// sub-block g.
void decode_q5_k(const uint8_t* s, float* y) {
  const float d = load_half(s);
  const float dmin = load_half(s + 2);
  const uint8_t* high = s + 16;
  for (int g = 0; g < 8; ++g) {
    const ScaleMin sm = q4_k_scale_min(s + 4, g);
    const float dl = d * sm.scale;
    const float ml = dmin * sm.min;
    const uint8_t* q = s + 48 + g / 2 * 32;
    const int shift = g % 2 * 4;
    for (int l = 0; l < 32; ++l)
      y[32 * g + l] = dl * static_cast<float>((q[l] >> shift & 15) | (high[l] >> g & 1) << 4) - ml;
  }
}

// Q6_K: 128 bytes of low halves, 64 bytes of bit pairs, 16 int8 scales, d.
void decode_q6_k(const uint8_t* s, float* y) {
  const float d = load_half(s + 208);
  for (int g = 0; g < 16; ++g) {
    const float dl = d * static_cast<float>(static_cast<int8_t>(s[192 + g]));
    const int run = g / 2 % 4;  // which 32 of the 128 values in this half of the block
    const uint8_t* low = s + g / 8 * 64 + run % 2 * 32 + g % 2 * 16;
    const uint8_t* high = s + 128 + g / 8 * 32 + g % 2 * 16;
    for (int l = 0; l < 16; ++l) {
      const int q = (low[l] >> (run / 2 * 4) & 15) | (high[l] >> (run * 2) & 3) << 4;
      y[16 * g + l] = dl * static_cast<float>(q - 32);
    }
  }
}

void decode_nibble_table(float d, const std::array<int8_t, 16>& values, const uint8_t* q, float* y) {
  for (int j = 0; j < 16; ++j) {
    y[j] = d * static_cast<float>(values[q[j] & 15]);
    y[j + 16] = d * static_cast<float>(values[q[j] >> 4]);
  }
}

void decode_iq4_nl(const uint8_t* s, float* y) {
  decode_nibble_table(load_half(s), kIq4NlValues, s + 2, y);
}

void decode_mxfp4(const uint8_t* s, float* y) {
  decode_nibble_table(half_of_e8m0(s[0]), kE2m1Doubled, s + 1, y);
}

template <void (*decode)(const uint8_t*, float*)>
void decode_blocks(const DTypeInfo& info, const uint8_t* src, size_t blocks, float* dst) {
  for (size_t b = 0; b < blocks; ++b) decode(src + b * info.block_bytes, dst + b * info.block_elements);
}

}  // namespace

void dequantize(DType type, const std::byte* src, size_t elements, float* dst) {
  const DTypeInfo& info = dtype_info(type);
  CHECK(elements % info.block_elements == 0);
  const size_t blocks = elements / info.block_elements;
  const auto* s = reinterpret_cast<const uint8_t*>(src);
  switch (type) {
    case DType::kF32:
      if (elements > 0) std::memcpy(dst, src, elements * sizeof(float));
      return;
    case DType::kF16:
      return decode_blocks<decode_f16>(info, s, blocks, dst);
    case DType::kBF16:
      return decode_blocks<decode_bf16>(info, s, blocks, dst);
    case DType::kQ4_0:
      return decode_blocks<decode_q4_0>(info, s, blocks, dst);
    case DType::kQ4_1:
      return decode_blocks<decode_q4_1>(info, s, blocks, dst);
    case DType::kQ5_0:
      return decode_blocks<decode_q5_0>(info, s, blocks, dst);
    case DType::kQ5_1:
      return decode_blocks<decode_q5_1>(info, s, blocks, dst);
    case DType::kQ8_0:
      return decode_blocks<decode_q8_0>(info, s, blocks, dst);
    case DType::kQ2_K:
      return decode_blocks<decode_q2_k>(info, s, blocks, dst);
    case DType::kQ3_K:
      return decode_blocks<decode_q3_k>(info, s, blocks, dst);
    case DType::kQ4_K:
      return decode_blocks<decode_q4_k>(info, s, blocks, dst);
    case DType::kQ5_K:
      return decode_blocks<decode_q5_k>(info, s, blocks, dst);
    case DType::kQ6_K:
      return decode_blocks<decode_q6_k>(info, s, blocks, dst);
    case DType::kIQ4_NL:
      return decode_blocks<decode_iq4_nl>(info, s, blocks, dst);
    case DType::kMXFP4:
      return decode_blocks<decode_mxfp4>(info, s, blocks, dst);
  }
  CHECK(false);
}

float half_to_float(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16;
  const uint32_t magnitude = h & 0x7FFF;
  if (magnitude >= 0x7C00)  // infinity or NaN, payload kept as it is
    return std::bit_cast<float>(sign | 0x7F800000 | magnitude << 13);
  if (magnitude >= 0x0400) return std::bit_cast<float>(sign | ((magnitude << 13) + ((127u - 15u) << 23)));
  // Subnormal or zero: a whole number of 2^-24, which a float holds exactly.
  const float value = static_cast<float>(magnitude) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(value));
}

uint16_t float_to_half(float f) {
  const uint32_t bits = std::bit_cast<uint32_t>(f);
  const uint32_t sign = bits >> 16 & 0x8000;
  const uint32_t magnitude = bits & 0x7FFFFFFF;
  if (magnitude > 0x7F800000)  // NaN: made quiet, upper payload kept, as VCVTPS2PH does
    return static_cast<uint16_t>(sign | 0x7E00 | (magnitude >> 13 & 0x1FF));
  if (magnitude >= 0x477FF000)  // 65520 and above round to infinity
    return static_cast<uint16_t>(sign | 0x7C00);
  if (magnitude < 0x38800000) {  // below 2^-14: adding 0.5 rounds to a multiple of 2^-24, nearest even
    const float shifted = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3F000000));
  }
  const uint32_t rounded = magnitude + 0xFFF + (magnitude >> 13 & 1);
  return static_cast<uint16_t>(sign | (rounded - ((127u - 15u) << 23)) >> 13);
}

float bf16_to_float(uint16_t b) {
  return std::bit_cast<float>(static_cast<uint32_t>(b) << 16);
}

}  // namespace kvasir
