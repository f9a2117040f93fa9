#include "kernels/isa/float_functions.h"
#include "kernels/isa/neon/lanes.h"
#include "kernels/isa/vector_elementwise.h"

namespace kvasir::neon {

void rms_norm(const float* x, const float* w, uint32_t n, float eps, float* y) {
  vec::rms_norm<F32x16>(x, w, n, eps, y);
}

void layer_norm(const float* x, const float* w, const float* b, uint32_t n, float eps, float* y) {
  vec::layer_norm<F32x16>(x, w, b, n, eps, y);
}

void gated_act(Activation act, const float* gate, const float* up, uint32_t n, float* y) {
  vec::gated_act<F32x16>(act, gate, up, n, y);
}

void rope(RopeKind kind, float* head, uint32_t n_rot, const float* cos, const float* sin) {
  vec::rope<F32x16>(kind, head, n_rot, cos, sin);
}

void add(const float* x, uint32_t n, float* y) {
  vec::add<F32x16>(x, n, y);
}

void scale(float s, uint32_t n, float* y) {
  vec::scale<F32x16>(s, n, y);
}

void softcap(float cap, uint32_t n, float* y) {
  vec::softcap<F32x16>(cap, n, y);
}

LogitScan scan_logits(const float* x, uint32_t n) {
  return vec::scan_logits<F32x16>(x, n);
}

uint32_t argmax(const float* x, uint32_t n) {
  return vec::argmax<F32x16>(x, n);
}

float log_sum_exp(const float* x, uint32_t n) {
  return vec::log_sum_exp<F32x16>(x, n);
}

}  // namespace kvasir::neon
