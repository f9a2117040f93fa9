#include <algorithm>
#include <cmath>
#include <limits>

#include "kernels/generic/kv_address.h"
#include "kernels/generic/rotate.h"
#include "kernels/isa/float_functions.h"
#include "kernels/quant_codec.h"

namespace kvasir::scalar {
namespace {

// The scale of a head's values, and what they are multiplied by before rounding; 0: they are all stored as 0.
struct HeadScale {
  float scale;
  float inverse;
};

HeadScale head_scale(const float* x, uint32_t n) {
  float largest = 0.0f;
  for (uint32_t i = 0; i < n; ++i) {
    if (!std::isfinite(x[i])) return {std::numeric_limits<float>::quiet_NaN(), 0.0f};
    largest = std::fmax(largest, std::fabs(x[i]));
  }
  const float scale = largest / 127.0f;
  if (scale < std::numeric_limits<float>::min()) return {0.0f, 0.0f};
  return {scale, 1.0f / scale};
}

int8_t quantize(float x, float inverse) {
  return inverse == 0.0f ? int8_t{0} : static_cast<int8_t>(std::lrintf(x * inverse));
}

void store_int8(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot, const float* k,
                const float* v) {
  float rotated[kAttnMaxHeadDim];
  std::copy_n(k, kv.head_dim, rotated);
  rotate_head(rotated, kv.head_dim, 1.0f);
  const HeadScale ks = head_scale(rotated, kv.head_dim);
  const HeadScale vs = head_scale(v, kv.head_dim);
  int8_t* k_out = k_tile<int8_t>(kv, kv_head, block, slot) + slot % kKvTile;
  int8_t* v_out = v_row<int8_t>(kv, kv_head, block, slot);
  for (uint32_t d = 0; d < kv.head_dim; ++d) {
    k_out[size_t{d} * kKvTile] = quantize(rotated[d], ks.inverse);
    v_out[d] = quantize(v[d], vs.inverse);
  }
  *k_scale(kv, kv_head, block, slot) = ks.scale;
  *v_scale(kv, kv_head, block, slot) = vs.scale;
}

// One part of a latent row: a latent or a rotated key.
void store_int8_part(const float* x, uint32_t n, int8_t* out, float* scale) {
  const HeadScale s = head_scale(x, n);
  for (uint32_t d = 0; d < n; ++d) out[d] = quantize(x[d], s.inverse);
  *scale = s.scale;
}

void store_latent(const KvPlanes& kv, BlockId block, uint32_t slot, const float* row) {
  if (kv.type == KvType::kF16) {
    uint16_t* out = latent_row<uint16_t>(kv, block, slot);
    for (uint32_t d = 0; d < kv.head_dim; ++d) out[d] = float_to_half(row[d]);
    return;
  }
  const uint32_t rotated = kv.head_dim - kv.latent;
  float key[kMaxRotatedKey];
  std::copy_n(row + kv.latent, rotated, key);
  rotate_head(key, rotated, 1.0f);
  int8_t* out = latent_row<int8_t>(kv, block, slot);
  store_int8_part(row, kv.latent, out, latent_scale(kv, block, slot));
  store_int8_part(key, rotated, out + kv.latent, rotated_scale(kv, block, slot));
}

}  // namespace

void store_kv(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot, const float* k,
              const float* v) {
  if (kv.latent != 0) return store_latent(kv, block, slot, k);
  if (kv.type == KvType::kInt8) return store_int8(kv, kv_head, block, slot, k, v);
  uint16_t* k_out = k_tile<uint16_t>(kv, kv_head, block, slot) + slot % kKvTile;
  uint16_t* v_out = v_row<uint16_t>(kv, kv_head, block, slot);
  for (uint32_t d = 0; d < kv.head_dim; ++d) {
    k_out[size_t{d} * kKvTile] = float_to_half(k[d]);
    v_out[d] = float_to_half(v[d]);
  }
}

}  // namespace kvasir::scalar
