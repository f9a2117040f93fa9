#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

namespace kvasir::scalar {

// One float with the operations that kernels/generic/math.h asks of a vector.
struct Float1 {
  float v;
  static Float1 broadcast(float f) { return {f}; }
};

inline Float1 operator+(Float1 a, Float1 b) {
  return {a.v + b.v};
}
inline Float1 operator-(Float1 a, Float1 b) {
  return {a.v - b.v};
}
inline Float1 operator*(Float1 a, Float1 b) {
  return {a.v * b.v};
}
inline Float1 operator/(Float1 a, Float1 b) {
  return {a.v / b.v};
}
inline Float1 fma(Float1 a, Float1 b, Float1 c) {
  return {std::fma(a.v, b.v, c.v)};
}
inline Float1 negate(Float1 a) {
  return {-a.v};
}
inline Float1 abs(Float1 a) {
  return {std::fabs(a.v)};
}
inline Float1 copy_sign(Float1 magnitude, Float1 sign) {
  return {std::copysign(magnitude.v, sign.v)};
}
inline Float1 select_less(Float1 a, Float1 b, Float1 x, Float1 y) {
  return a.v < b.v ? x : y;
}
inline Float1 exponent_bits(Float1 a) {
  return {std::bit_cast<float>(std::bit_cast<uint32_t>(a.v) << 23)};
}

}  // namespace kvasir::scalar
