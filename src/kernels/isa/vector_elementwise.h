#pragma once

#include <cstdint>
#include <limits>

#include "kernels/generic/log.h"
#include "kernels/generic/math.h"
#include "kernels/inline.h"
#include "kernels/isa/all_lanes.h"
#include "kernels/table.h"

// The element-wise kernels over V, sixteen floats of an instruction set (isa/<isa>/lanes.h). Lane i of step s
// handles element 16 s + i, so partial sums are those of generic/reduce.h, and tree_sum of V's namespace is
// its tree. Included only by isa/<isa>/elementwise.cc.
namespace kvasir::vec {

inline constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// Calls f(i, mask) for each sixteen elements of n: AllLanes, and for the rest of them a partial mask.
template <class V, class F>
KVASIR_INLINE void for_each_sixteen(uint32_t n, F f) {
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) f(i, AllLanes{});
  if (i < n) f(i, V::Mask::first(static_cast<int>(n - i)));
}

template <class V>
void rms_norm(const float* x, const float* w, uint32_t n, float eps, float* y) {
  V partials = V::broadcast(0.0f);
  for_each_sixteen<V>(n, [&](uint32_t i, auto m) {
    const V v = V::load(x + i, m, 0.0f);
    partials = fma(v, v, partials);
  });
  const float mean = tree_sum(partials) / static_cast<float>(n);
  const V factor = V::broadcast(1.0f / __builtin_sqrtf(mean + eps));
  for_each_sixteen<V>(n, [&](uint32_t i, auto m) {
    ((V::load(x + i, m, 0.0f) * factor) * V::load(w + i, m, 0.0f)).store(y + i, m);
  });
}

template <class V>
void layer_norm(const float* x, const float* w, const float* b, uint32_t n, float eps, float* y) {
  V sums = V::broadcast(0.0f);
  for_each_sixteen<V>(n, [&](uint32_t i, auto m) { sums = sums + V::load(x + i, m, 0.0f); });
  const float mean = tree_sum(sums) / static_cast<float>(n);
  const V center = V::broadcast(mean);
  V squares = V::broadcast(0.0f);
  for_each_sixteen<V>(n, [&](uint32_t i, auto m) {
    const V v = V::load(x + i, m, mean) - center;  // lanes beyond the row add nothing
    squares = fma(v, v, squares);
  });
  const float variance = tree_sum(squares) / static_cast<float>(n);
  const V factor = V::broadcast(1.0f / __builtin_sqrtf(variance + eps));
  for_each_sixteen<V>(n, [&](uint32_t i, auto m) {
    const V v = ((V::load(x + i, m, 0.0f) - center) * factor) * V::load(w + i, m, 0.0f);
    (b != nullptr ? v + V::load(b + i, m, 0.0f) : v).store(y + i, m);
  });
}

template <class V>
void gated_act(Activation act, const float* gate, const float* up, uint32_t n, float* y) {
  for_each_sixteen<V>(n, [&](uint32_t i, auto m) {
    const V g = V::load(gate + i, m, 0.0f);
    if (act == Activation::kClampedSwiglu) {
      math::clamped_swiglu(g, V::load(up + i, m, 0.0f)).store(y + i, m);
      return;
    }
    const V a = act == Activation::kSilu   ? math::silu(g)
                : act == Activation::kRelu ? math::relu(g)
                                           : math::gelu_tanh(g);
    (a * V::load(up + i, m, 0.0f)).store(y + i, m);
  });
}

// (a, b) -> (a cos - b sin, b cos + a sin)
template <class V>
KVASIR_INLINE void rotate(V& a, V& b, V cos, V sin) {
  const V x = a;
  const V y = b;
  a = fma(x, cos, negate(y * sin));
  b = fma(y, cos, x * sin);
}

// Rotates sixteen neighbouring pairs; the masks choose among the first and the last sixteen values.
template <class V, class Mask>
KVASIR_INLINE void rotate_pairs(float* pairs, Mask low, Mask high, V cos, V sin) {
  V even, odd;
  deinterleave(V::load(pairs, low, 0.0f), V::load(pairs + 16, high, 0.0f), even, odd);
  rotate(even, odd, cos, sin);
  V first, second;
  interleave(even, odd, first, second);
  first.store(pairs, low);
  second.store(pairs + 16, high);
}

template <class V>
void rope(RopeKind kind, float* head, uint32_t n_rot, const float* cos, const float* sin) {
  const uint32_t half = n_rot / 2;
  for_each_sixteen<V>(half, [&](uint32_t i, auto m) {
    const V c = V::load(cos + i, m, 1.0f);
    const V s = V::load(sin + i, m, 0.0f);
    const int left = static_cast<int>(n_rot - 2 * i);
    if (kind == RopeKind::kNeox) {
      V a = V::load(head + i, m, 0.0f);
      V b = V::load(head + half + i, m, 0.0f);
      rotate(a, b, c, s);
      a.store(head + i, m);
      b.store(head + half + i, m);
    } else if (left >= 32) {
      rotate_pairs(head + 2 * i, AllLanes{}, AllLanes{}, c, s);
    } else {
      rotate_pairs(head + 2 * i, V::Mask::between(0, left), V::Mask::between(-16, left - 16), c, s);
    }
  });
}

template <class V>
void add(const float* x, uint32_t n, float* y) {
  for_each_sixteen<V>(
      n, [&](uint32_t i, auto m) { (V::load(y + i, m, 0.0f) + V::load(x + i, m, 0.0f)).store(y + i, m); });
}

template <class V>
void scale(float s, uint32_t n, float* y) {
  const V factor = V::broadcast(s);
  for_each_sixteen<V>(n, [&](uint32_t i, auto m) { (V::load(y + i, m, 0.0f) * factor).store(y + i, m); });
}

template <class V>
void softcap(float cap, uint32_t n, float* y) {
  for_each_sixteen<V>(n, [&](uint32_t i, auto m) {
    math::softcap(V::load(y + i, m, 0.0f), V::broadcast(cap)).store(y + i, m);
  });
}

// The largest value that is not NaN; -infinity if there is none.
template <class V>
float row_max(const float* x, uint32_t n) {
  V best = V::broadcast(-math::kInfinity);
  for_each_sixteen<V>(n, [&](uint32_t i, auto m) { best = max(V::load(x + i, m, -math::kInfinity), best); });
  return reduce_max(best);
}

template <class V>
LogitScan scan_logits(const float* x, uint32_t n) {
  V largest = V::broadcast(-math::kInfinity);
  V unsound = V::broadcast(0.0f);
  for_each_sixteen<V>(n, [&](uint32_t i, auto m) {
    const V v = V::load(x + i, m, -math::kInfinity);
    largest = max(v, largest);
    unsound = select_less(v, V::broadcast(math::kInfinity), unsound, V::broadcast(1.0f));
  });
  return {reduce_max(largest), reduce_max(unsound) != 0.0f};
}

template <class V>
uint32_t argmax(const float* x, uint32_t n) {
  const V best = V::broadcast(row_max<V>(x, n));
  uint32_t i = 0;
  for (; i + 16 <= n; i += 16) {
    const int lane = equal(V::load(x + i), best).lowest();
    if (lane < 16) return i + static_cast<uint32_t>(lane);
  }
  if (i == n) return 0;  // every value is NaN
  const int lane = equal(V::load(x + i, V::Mask::first(static_cast<int>(n - i)), kNan), best).lowest();
  return lane < 16 ? i + static_cast<uint32_t>(lane) : 0;
}

template <class V>
float log_sum_exp(const float* x, uint32_t n) {
  const float max = row_max<V>(x, n);
  const float base = __builtin_isinf(max) ? 0.0f : max;
  V partials = V::broadcast(0.0f);
  for_each_sixteen<V>(n, [&](uint32_t i, auto m) {
    partials = partials + math::exp(V::load(x + i, m, -math::kInfinity) - V::broadcast(base));
  });
  return math::log_nonnegative(tree_sum(partials)) + base;
}

}  // namespace kvasir::vec
