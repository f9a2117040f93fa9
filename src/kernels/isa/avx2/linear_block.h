#pragma once

#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "kernels/quant/format.h"

// Packed blocks in AVX2 registers, half a panel (8 outputs) at a time. Everything here has internal linkage
// and is inlined, so that no function built for one instruction set can stand in for one of another file.
namespace kvasir::avx2 {
namespace {

using namespace quant;

inline constexpr uint32_t kHalfCols = kPanelCols / 2;

// fn(integral_constant<int, 0>) ... fn(integral_constant<int, N - 1>), written out.
template <int N, class Fn>
[[gnu::always_inline]] inline void unroll(const Fn& fn) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (fn(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

template <int From, int To>
[[gnu::always_inline]] inline __m256i move_bits(__m256i v) {
  if constexpr (To > From)
    return _mm256_slli_epi16(v, To - From);
  else if constexpr (To < From)
    return _mm256_srli_epi16(v, From - To);
  else
    return v;
}

// The field of `Width` bits at bit `From` of every byte, at bit `To`.
template <int From, int Width, int To>
[[gnu::always_inline]] inline __m256i bit_field(const uint8_t* p) {
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm256_and_si256(move_bits<From, To>(v),
                          _mm256_set1_epi8(static_cast<char>(((1 << Width) - 1) << To)));
}

// Quad `I` of outputs 8 * Half .. of a block: unsigned codes, or signed ones less their zero point where
// Signed.
template <class F, int I, int Half, bool Signed>
[[gnu::always_inline]] inline __m256i unpack_quad(const uint8_t* packed) {
  const uint8_t* p = packed + Half * 32;
  __m256i w;
  if constexpr (F::kBits == 8) {
    w = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p + I * kQuadBytes));
  } else if constexpr (F::kBits >= 4) {
    w = bit_field<I / 4 * 4, 4, 0>(p + I % 4 * kQuadBytes);
  } else {
    w = bit_field<I % 4 * 2, 2, 0>(p + I / 4 * kQuadBytes);
  }
  if constexpr (F::kBits == 5) w = _mm256_or_si256(w, bit_field<I, 1, 4>(p + 4 * kQuadBytes));
  if constexpr (F::kBits == 3) w = _mm256_or_si256(w, bit_field<I, 1, 2>(p + 2 * kQuadBytes));
  if constexpr (F::kBits == 6)
    w = _mm256_or_si256(w, bit_field<I % 4 * 2, 2, 4>(p + (4 + I / 4) * kQuadBytes));
  if constexpr (F::kCodebook != Codebook::kNone) {
    const uint8_t* table = F::kCodebook == Codebook::kIq4Nl ? kIq4NlCodes : kMxfp4Codes;
    w = _mm256_shuffle_epi8(
        _mm256_broadcastsi128_si256(_mm_loadu_si128(reinterpret_cast<const __m128i*>(table))), w);
  }
  if constexpr (Signed) w = _mm256_xor_si256(w, _mm256_set1_epi8(static_cast<char>(0x80)));
  return w;
}

// Four consecutive activations in every lane.
[[gnu::always_inline]] inline __m256i broadcast_quad(const int8_t* q) {
  int32_t v;
  __builtin_memcpy(&v, q, sizeof v);
  return _mm256_set1_epi32(v);
}

[[gnu::always_inline]] inline __m256 load_halves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

[[gnu::always_inline]] inline __m128i load_bytes(const uint8_t* p) {
  return _mm_loadl_epi64(reinterpret_cast<const __m128i*>(p));
}

// Scales and minimums of half a block; a minimum has the sign it is added with.
template <class F>
struct HalfScales {
  __m256 d[F::kGroups];
  __m256 m[F::kGroups];
};

template <class F>
[[gnu::always_inline]] inline __m256 sub_scale(__m128i bytes, const uint8_t* halves) {
  const __m256i wide =
      F::kScale == ScaleKind::kSubS8 ? _mm256_cvtepi8_epi32(bytes) : _mm256_cvtepu8_epi32(bytes);
  return _mm256_mul_ps(load_halves(halves), _mm256_cvtepi32_ps(wide));
}

// 2^(e - 128), subnormal for e < 2.
[[gnu::always_inline]] inline __m256 e8m0_half(__m128i bytes) {
  const __m256i e = _mm256_cvtepu8_epi32(bytes);
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i subnormal = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  const __m256i small = _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e);
  return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, subnormal, small));
}

template <class F, int Half>
[[gnu::always_inline]] inline HalfScales<F> load_scales(const Chunk<F>& chunk, uint32_t b) {
  const uint8_t* s = chunk.scales(b);
  HalfScales<F> out;
  if constexpr (F::kScale == ScaleKind::kHalf) {
    out.d[0] = load_halves(s + 16 * Half);
    if constexpr (F::kHasMin) out.m[0] = load_halves(s + 32 + 16 * Half);
  } else if constexpr (F::kScale == ScaleKind::kE8M0) {
    out.d[0] = e8m0_half(load_bytes(s + 8 * Half));
  } else {
    const uint8_t* d = chunk.header + 16 * Half;
    unroll<F::kGroups>([&](auto i) __attribute__((always_inline)) {
      constexpr int kG = decltype(i)::value;
      const __m128i low_mask = _mm_set1_epi8(15);
      const __m128i sub = load_bytes(s + 16 * kG + 8 * Half);
      if constexpr (F::kScale == ScaleKind::kNibbles) {
        out.d[kG] = sub_scale<F>(_mm_and_si128(sub, low_mask), d);
        out.m[kG] = sub_scale<F>(_mm_and_si128(_mm_srli_epi16(sub, 4), low_mask), d + 32);
      } else {
        out.d[kG] = sub_scale<F>(sub, d);
        if constexpr (F::kHasMin)
          out.m[kG] = sub_scale<F>(load_bytes(s + 16 * (F::kGroups + kG) + 8 * Half), d + 32);
      }
      if constexpr (F::kMin == MinKind::kSubtract)
        out.m[kG] = _mm256_xor_ps(out.m[kG], _mm256_set1_ps(-0.0f));
    });
  }
  return out;
}

}  // namespace
}  // namespace kvasir::avx2
