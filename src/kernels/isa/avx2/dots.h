#pragma once

#include "kernels/isa/avx2/linear_block.h"

// Integer dots with what AVX2 has: products of bytes are added in 16 bits first.
namespace kvasir::avx2 {
namespace {

// A set of instructions for integer dots, the parameter `Dots` of linear_tile.h. `kSigned<F>`: codes are
// taken as signed bytes less their zero point of 128. `add`: dots[r][h] += quads [First, First + Count) of
// half h times row r, whose activations are `k` bytes after those of row r - 1.
struct MaddubsDots {
  // VPMADDUBSW adds two products in 16 bits. Codes with a zero point of 128 would overflow it: they are taken
  // as signed bytes, and the product runs over |w| and q with w's sign. Sums are the same integers.
  template <class F>
  static constexpr bool kSigned = F::kZero == 128;

  // How many such sums fit 16 bits: 127 * 2 * (largest code) * depth <= 32767.
  template <class F>
  static constexpr int kSumDepth = kSigned<F>                         ? 1
                                   : F::kCodebook == Codebook::kMxfp4 ? 4
                                   : F::kBits <= 4                    ? 8
                                   : F::kBits == 5                    ? 4
                                                                      : 2;

  template <class F, int First, int Count, int Rows, class Source>
  [[gnu::always_inline]] static void add(const Source& source, const int8_t* q, size_t k,
                                         __m256i (&dots)[Rows][2]) {
    constexpr int kDepth = kSumDepth<F>;
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i narrow[Rows][2];
    unroll<Count>([&](auto i) __attribute__((always_inline)) {
      constexpr int kI = First + decltype(i)::value;
      constexpr bool kOpens = decltype(i)::value % kDepth == 0;
      constexpr bool kCloses = (decltype(i)::value + 1) % kDepth == 0 || decltype(i)::value + 1 == Count;
      const __m256i w[2] = {source.template quad<kI, 0>(), source.template quad<kI, 1>()};
      unroll<Rows>([&](auto r) __attribute__((always_inline)) {
        constexpr int kR = decltype(r)::value;
        const __m256i a = broadcast_quad(q + kR * k + 4 * kI);
        unroll<2>([&](auto h) __attribute__((always_inline)) {
          constexpr int kH = decltype(h)::value;
          const __m256i pairs = kSigned<F>
                                    ? _mm256_maddubs_epi16(_mm256_abs_epi8(w[kH]), _mm256_sign_epi8(a, w[kH]))
                                    : _mm256_maddubs_epi16(w[kH], a);
          __m256i& sum = narrow[kR][kH];
          sum = kOpens ? pairs : _mm256_add_epi16(sum, pairs);
          if constexpr (kCloses) dots[kR][kH] = _mm256_add_epi32(dots[kR][kH], _mm256_madd_epi16(sum, ones));
        });
      });
    });
  }
};

}  // namespace
}  // namespace kvasir::avx2
