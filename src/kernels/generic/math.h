#pragma once

#include <limits>

#include "kernels/inline.h"

// Elementary functions of one float or of a vector of them: the same operations in the same order whatever V
// is, so that every instruction set gives the same bits (docs/numerics.md, rule 3). V offers
// broadcast(float), + - * /, fma(a, b, c) = a * b + c rounded once, negate, abs, copy_sign, select_less(a, b,
// x, y) = a < b ? x : y, and exponent_bits(v): the low bits of v's representation moved into the exponent
// field.
//
// The polynomials are weighted minimax fits (Lawson's iteration); math_test.cc measures their errors over all
// floats of the domain.
namespace kvasir::math {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();

// Results below the smallest normal float are zero, above 2^127.5 infinite.
inline constexpr float kExpLow = -87.33654f;
inline constexpr float kExpHigh = 88.376f;

// exp(x) of an x <= 0 (or NaN, which stays NaN): the bits of exp(x), for one comparison less.
template <class V>
KVASIR_INLINE V exp_nonpositive(V x) {
  // x * log2(e) rounded to an integer n by adding a number whose ulp is 1; its 127 leaves n + 127 in the low
  // bits.
  const V round = V::broadcast(12582912.0f + 127.0f);
  const V shifted = fma(x, V::broadcast(1.44269504f), round);
  const V n = shifted - round;
  V r = fma(n, V::broadcast(-0.693147182464599609375f), x);  // float(ln 2)
  r = fma(n, V::broadcast(1.904654299957768e-9f), r);        // the rest of ln 2
  V p = V::broadcast(0.0013814467f);
  p = fma(p, r, V::broadcast(0.008368781f));
  p = fma(p, r, V::broadcast(0.041668393f));
  p = fma(p, r, V::broadcast(0.1666652f));
  p = fma(p, r, V::broadcast(0.49999994f));
  p = fma(p, r, V::broadcast(1.0f));
  p = fma(p, r, V::broadcast(1.0f));
  return select_less(x, V::broadcast(kExpLow), V::broadcast(0.0f), p * exponent_bits(shifted));
}

// exp(x) within 2 ulp for kExpLow <= x <= kExpHigh; exactly 1 at 0, 0 below, infinite above; NaN stays NaN.
template <class V>
KVASIR_INLINE V exp(V x) {
  return select_less(V::broadcast(kExpHigh), x, V::broadcast(kInfinity), math::exp_nonpositive(x));
}

// x * sigmoid(x)
template <class V>
KVASIR_INLINE V silu(V x) {
  return x / (V::broadcast(1.0f) + math::exp(negate(x)));
}

// x * sigmoid(1.702 x) * (y + 1), where x is `gate` but at most 7 and y `up` within -7 to 7 (gpt-oss).
template <class V>
KVASIR_INLINE V clamped_swiglu(V gate, V up) {
  const V limit = V::broadcast(7.0f), least = V::broadcast(-7.0f), one = V::broadcast(1.0f);
  const V x = select_less(limit, gate, limit, gate);
  const V most = select_less(limit, up, limit, up);
  const V y = select_less(most, least, least, most);
  return x / (one + math::exp(x * V::broadcast(-1.702f))) * (y + one);
}

// GELU by its tanh form, 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))), written as x * sigmoid(2 u): no
// cancellation where the tanh nears -1.
template <class V>
KVASIR_INLINE V gelu_tanh(V x) {
  const V minus_2u = x * fma(V::broadcast(-0.0713548163f), x * x, V::broadcast(-1.59576912f));
  return x / (V::broadcast(1.0f) + math::exp(minus_2u));
}

// x where it is above 0, else 0; NaN stays NaN.
template <class V>
KVASIR_INLINE V relu(V x) {
  return select_less(x, V::broadcast(0.0f), V::broadcast(0.0f), x);
}

// tanh(x) within 2 ulp: a polynomial near 0, 1 - 2 / (exp(2 |x|) + 1) beyond.
template <class V>
KVASIR_INLINE V tanh(V x) {
  const V a = abs(x);
  const V z = x * x;
  V p = V::broadcast(-0.0057170438f);
  p = fma(p, z, V::broadcast(0.020650586f));
  p = fma(p, z, V::broadcast(-0.053743497f));
  p = fma(p, z, V::broadcast(0.13331491f));
  p = fma(p, z, V::broadcast(-0.33333284f));
  const V near = fma(a * z, p, a);
  const V e = math::exp(a + a);
  const V far = V::broadcast(1.0f) - V::broadcast(2.0f) / (e + V::broadcast(1.0f));
  return copy_sign(select_less(a, V::broadcast(0.625f), near, far), x);
}

// cap * tanh(x / cap)
template <class V>
KVASIR_INLINE V softcap(V x, V cap) {
  return cap * math::tanh(x / cap);
}

}  // namespace kvasir::math
