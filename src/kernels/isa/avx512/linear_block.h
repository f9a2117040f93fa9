#pragma once

#include <immintrin.h>

#include <cstdint>
#include <utility>

#include "kernels/quant/format.h"

// Packed blocks in AVX-512 registers. Everything here has internal linkage and is inlined, so that no
// function built for this instruction set can stand in for one of another file.
namespace kvasir::avx512 {
namespace {

using namespace quant;

// fn(integral_constant<int, 0>) ... fn(integral_constant<int, N - 1>), written out.
template <int N, class Fn>
[[gnu::always_inline]] inline void unroll(const Fn& fn) {
  [&]<int... I>(std::integer_sequence<int, I...>) __attribute__((always_inline)) {
    (fn(std::integral_constant<int, I>{}), ...);
  }
  (std::make_integer_sequence<int, N>{});
}

// Moves bit field at bit `From` of every byte to bit `To`; neighbouring bytes leak in outside the field.
template <int From, int To>
[[gnu::always_inline]] inline __m512i move_bits(__m512i v) {
  if constexpr (To > From)
    return _mm512_slli_epi16(v, To - From);
  else if constexpr (To < From)
    return _mm512_srli_epi16(v, From - To);
  else
    return v;
}

// low | (high & mask), one instruction.
[[gnu::always_inline]] inline __m512i or_masked(__m512i low, __m512i high, __m512i mask) {
  return _mm512_ternarylogic_epi32(low, high, mask, 0xF8);
}

[[gnu::always_inline]] inline __m512i load_row(const uint8_t* p) {
  return _mm512_loadu_si512(p);
}

template <class F>
[[gnu::always_inline]] inline __m512i look_up(__m512i codes) {
  if constexpr (F::kCodebook == Codebook::kNone) {
    return codes;
  } else {
    const uint8_t* table = F::kCodebook == Codebook::kIq4Nl ? kIq4NlCodes : kMxfp4Codes;
    const __m128i t = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
    return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(t), codes);
  }
}

// The eight quads of a block as unsigned bytes.
template <class F>
[[gnu::always_inline]] inline void unpack_codes(const uint8_t* packed, __m512i (&w)[kQuads]) {
  if constexpr (F::kBits == 8) {
    unroll<8>([&](auto i) __attribute__((always_inline)) {
      w[decltype(i)::value] = load_row(packed + decltype(i)::value * kQuadBytes);
    });
  } else if constexpr (F::kBits >= 4) {
    const __m512i low_mask = _mm512_set1_epi8(15);
    unroll<4>([&](auto i) __attribute__((always_inline)) {
      constexpr int kI = decltype(i)::value;
      const __m512i v = load_row(packed + kI * kQuadBytes);
      w[kI] = look_up<F>(_mm512_and_si512(v, low_mask));
      w[kI + 4] = look_up<F>(_mm512_and_si512(_mm512_srli_epi16(v, 4), low_mask));
    });
  } else {
    const __m512i pair_mask = _mm512_set1_epi8(3);
    unroll<8>([&](auto i) __attribute__((always_inline)) {
      constexpr int kI = decltype(i)::value;
      const __m512i v = load_row(packed + kI / 4 * kQuadBytes);
      w[kI] = _mm512_and_si512(move_bits<kI % 4 * 2, 0>(v), pair_mask);
    });
  }
  if constexpr (F::kBits == 5 || F::kBits == 3) {
    constexpr int kTo = F::kBits - 1;
    const __m512i high = load_row(packed + (F::kBits == 5 ? 4 : 2) * kQuadBytes);
    const __m512i mask = _mm512_set1_epi8(1 << kTo);
    unroll<8>([&](auto i) __attribute__((always_inline)) {
      constexpr int kI = decltype(i)::value;
      w[kI] = or_masked(w[kI], move_bits<kI, kTo>(high), mask);
    });
  }
  if constexpr (F::kBits == 6) {
    const __m512i mask = _mm512_set1_epi8(0x30);
    unroll<8>([&](auto i) __attribute__((always_inline)) {
      constexpr int kI = decltype(i)::value;
      const __m512i high = load_row(packed + (4 + kI / 4) * kQuadBytes);
      w[kI] = or_masked(w[kI], move_bits<kI % 4 * 2, 4>(high), mask);
    });
  }
}

[[gnu::always_inline]] inline __m512 load_halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

[[gnu::always_inline]] inline __m128i load_bytes(const uint8_t* p) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
}

// d and dmin of a chunk, for formats with two levels of scales.
struct ChunkScales {
  __m512 d;
  __m512 dmin;
};

template <class F>
[[gnu::always_inline]] inline ChunkScales load_chunk_scales([[maybe_unused]] const uint8_t* header) {
  ChunkScales s{_mm512_setzero_ps(), _mm512_setzero_ps()};
  if constexpr (F::kTwoLevels) s.d = load_halves(header);
  if constexpr (F::kTwoLevels && F::kHasMin) s.dmin = load_halves(header + 32);
  return s;
}

// Scales and minimums of one block; a minimum has the sign it is added with.
template <class F>
struct BlockScales {
  __m512 d[F::kGroups];
  __m512 m[F::kGroups];
};

template <class F>
[[gnu::always_inline]] inline __m512 sub_scale(__m128i bytes, __m512 d) {
  const __m512i wide =
      F::kScale == ScaleKind::kSubS8 ? _mm512_cvtepi8_epi32(bytes) : _mm512_cvtepu8_epi32(bytes);
  return _mm512_mul_ps(d, _mm512_cvtepi32_ps(wide));
}

[[gnu::always_inline]] inline __m512 negate(__m512 v) {
  return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(v), _mm512_set1_epi32(INT32_MIN)));
}

// 2^(e - 128), subnormal for e < 2.
[[gnu::always_inline]] inline __m512 e8m0_half(__m128i bytes) {
  const __m512i e = _mm512_cvtepu8_epi32(bytes);
  const __m512i normal = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  const __m512i subnormal = _mm512_sllv_epi32(_mm512_set1_epi32(0x00200000), e);
  return _mm512_castsi512_ps(
      _mm512_mask_mov_epi32(normal, _mm512_cmplt_epu32_mask(e, _mm512_set1_epi32(2)), subnormal));
}

template <class F>
[[gnu::always_inline]] inline BlockScales<F> load_scales(const uint8_t* s, const ChunkScales& chunk) {
  BlockScales<F> out;
  if constexpr (F::kScale == ScaleKind::kHalf) {
    out.d[0] = load_halves(s);
    if constexpr (F::kHasMin) out.m[0] = load_halves(s + 32);
  } else if constexpr (F::kScale == ScaleKind::kE8M0) {
    out.d[0] = e8m0_half(load_bytes(s));
  } else {
    unroll<F::kGroups>([&](auto i) __attribute__((always_inline)) {
      constexpr int kG = decltype(i)::value;
      const __m128i low_mask = _mm_set1_epi8(15);
      const __m128i sub = load_bytes(s + 16 * kG);
      if constexpr (F::kScale == ScaleKind::kNibbles) {
        out.d[kG] = sub_scale<F>(_mm_and_si128(sub, low_mask), chunk.d);
        out.m[kG] = sub_scale<F>(_mm_and_si128(_mm_srli_epi16(sub, 4), low_mask), chunk.dmin);
      } else {
        out.d[kG] = sub_scale<F>(sub, chunk.d);
        if constexpr (F::kHasMin)
          out.m[kG] = sub_scale<F>(load_bytes(s + 16 * (F::kGroups + kG)), chunk.dmin);
      }
      if constexpr (F::kMin == MinKind::kSubtract) out.m[kG] = negate(out.m[kG]);
    });
  }
  return out;
}

// Four consecutive activations in every lane.
[[gnu::always_inline]] inline __m512i broadcast_quad(const int8_t* q) {
  int32_t v;
  __builtin_memcpy(&v, q, sizeof v);
  return _mm512_set1_epi32(v);
}

}  // namespace
}  // namespace kvasir::avx512
