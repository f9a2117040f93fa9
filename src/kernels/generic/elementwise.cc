#include <cmath>

#include "kernels/generic/log.h"
#include "kernels/generic/math.h"
#include "kernels/generic/reduce.h"
#include "kernels/generic/scalar_float.h"
#include "kernels/isa/float_functions.h"
#include "kernels/quant_codec.h"

namespace kvasir::scalar {
namespace {

void rotate(float& a, float& b, float cos, float sin) {
  const float x = a;
  const float y = b;
  a = std::fma(x, cos, -(y * sin));
  b = std::fma(y, cos, x * sin);
}

}  // namespace

void rms_norm(const float* x, const float* w, uint32_t n, float eps, float* y) {
  float partials[kPartials] = {};
  for (uint32_t i = 0; i < n; ++i) {
    float& partial = partials[i % kPartials];
    partial = std::fma(x[i], x[i], partial);
  }
  const float mean = tree_sum(partials) / static_cast<float>(n);
  const float factor = 1.0f / std::sqrt(mean + eps);
  for (uint32_t i = 0; i < n; ++i) y[i] = (x[i] * factor) * w[i];
}

void layer_norm(const float* x, const float* w, const float* b, uint32_t n, float eps, float* y) {
  float sums[kPartials] = {};
  for (uint32_t i = 0; i < n; ++i) sums[i % kPartials] = sums[i % kPartials] + x[i];
  const float mean = tree_sum(sums) / static_cast<float>(n);
  float squares[kPartials] = {};
  for (uint32_t i = 0; i < n; ++i) {
    const float v = x[i] - mean;
    squares[i % kPartials] = std::fma(v, v, squares[i % kPartials]);
  }
  const float variance = tree_sum(squares) / static_cast<float>(n);
  const float factor = 1.0f / std::sqrt(variance + eps);
  for (uint32_t i = 0; i < n; ++i) {
    const float v = ((x[i] - mean) * factor) * w[i];
    y[i] = b != nullptr ? v + b[i] : v;
  }
}

void gated_act(Activation act, const float* gate, const float* up, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) {
    const Float1 g{gate[i]};
    if (act == Activation::kClampedSwiglu) {
      y[i] = math::clamped_swiglu(g, Float1{up[i]}).v;
      continue;
    }
    const Float1 a = act == Activation::kSilu   ? math::silu(g)
                     : act == Activation::kRelu ? math::relu(g)
                                                : math::gelu_tanh(g);
    y[i] = a.v * up[i];
  }
}

void rope(RopeKind kind, float* head, uint32_t n_rot, const float* cos, const float* sin) {
  const uint32_t half = n_rot / 2;
  for (uint32_t i = 0; i < half; ++i) {
    const uint32_t a = kind == RopeKind::kNorm ? 2 * i : i;
    const uint32_t b = kind == RopeKind::kNorm ? 2 * i + 1 : i + half;
    rotate(head[a], head[b], cos[i], sin[i]);
  }
}

void add(const float* x, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) y[i] = y[i] + x[i];
}

void scale(float s, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) y[i] = y[i] * s;
}

void softcap(float cap, uint32_t n, float* y) {
  for (uint32_t i = 0; i < n; ++i) y[i] = math::softcap(Float1{y[i]}, Float1{cap}).v;
}

LogitScan scan_logits(const float* x, uint32_t n) {
  LogitScan scan = {-math::kInfinity, false};
  for (uint32_t i = 0; i < n; ++i) {
    if (x[i] > scan.largest) scan.largest = x[i];
    scan.unsound |= !(x[i] < math::kInfinity);
  }
  return scan;
}

uint32_t argmax(const float* x, uint32_t n) {
  uint32_t best = n;
  for (uint32_t i = 0; i < n; ++i) {
    if (std::isnan(x[i])) continue;
    if (best == n || x[i] > x[best]) best = i;
  }
  return best == n ? 0 : best;
}

float log_sum_exp(const float* x, uint32_t n) {
  float max = -math::kInfinity;
  for (uint32_t i = 0; i < n; ++i) max = max < x[i] ? x[i] : max;
  const float base = std::isinf(max) ? 0.0f : max;
  float partials[kPartials] = {};
  for (uint32_t i = 0; i < n; ++i) partials[i % kPartials] += math::exp(Float1{x[i] - base}).v;
  return math::log_nonnegative(tree_sum(partials)) + base;
}

}  // namespace kvasir::scalar
