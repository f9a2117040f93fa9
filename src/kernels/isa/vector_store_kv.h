#pragma once

#include <cstdint>
#include <limits>

#include "kernels/generic/kv_address.h"
#include "kernels/isa/vector_rotate.h"

// Writing K and V into the pool over V, sixteen floats of an instruction set: the bits of
// generic/store_kv.cc. Included only by isa/<isa>/attention.cc.
namespace kvasir::vec {

// The scale of a head's values, and what they are multiplied by before rounding; 0: they are all stored as 0.
struct HeadScale {
  float scale;
  float inverse;
};

template <class V>
HeadScale head_scale(const float* x, uint32_t n) {
  const V zero = V::broadcast(0.0f);
  V largest = zero;
  V check = zero;  // stays 0 unless a value is infinite or NaN
  for (uint32_t i = 0; i < n; i += 16) {
    const V v = V::load(x + i);
    largest = max(abs(v), largest);
    check = fma(v, zero, check);
  }
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  constexpr float kSmallestNormal = std::numeric_limits<float>::min();
  if (!(tree_sum(check) == 0.0f)) return {kNan, 0.0f};
  const float scale = reduce_max(largest) / 127.0f;
  if (scale < kSmallestNormal) return {0.0f, 0.0f};
  return {scale, 1.0f / scale};
}

// Sixteen values as bytes.
template <class V>
KVASIR_INLINE void quantize(const float* x, float inverse, int8_t* out) {
  const V zero = V::broadcast(0.0f);
  (inverse == 0.0f ? zero : V::load(x) * V::broadcast(inverse)).store_int8(out);
}

template <class V>
void store_int8(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot, const float* k,
                const float* v) {
  alignas(64) float rotated[kAttnMaxHeadDim];
  rotate_head<V>(k, kv.head_dim, 1.0f, 1.0f, rotated);
  const HeadScale ks = head_scale<V>(rotated, kv.head_dim);
  const HeadScale vs = head_scale<V>(v, kv.head_dim);
  int8_t* k_out = k_tile<int8_t>(kv, kv_head, block, slot) + slot % kKvTile;
  int8_t* v_out = v_row<int8_t>(kv, kv_head, block, slot);
  for (uint32_t d = 0; d < kv.head_dim; d += kKvTile) {
    quantize<V>(v + d, vs.inverse, v_out + d);
    int8_t bytes[kKvTile];
    quantize<V>(rotated + d, ks.inverse, bytes);
    for (uint32_t i = 0; i < kKvTile; ++i) k_out[size_t{d + i} * kKvTile] = bytes[i];
  }
  *k_scale(kv, kv_head, block, slot) = ks.scale;
  *v_scale(kv, kv_head, block, slot) = vs.scale;
}

template <class V>
void store_f16(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot, const float* k,
               const float* v) {
  uint16_t* k_out = k_tile<uint16_t>(kv, kv_head, block, slot) + slot % kKvTile;
  uint16_t* v_out = v_row<uint16_t>(kv, kv_head, block, slot);
  for (uint32_t d = 0; d < kv.head_dim; d += kKvTile) {
    V::load(v + d).store_half(v_out + d);
    uint16_t halves[kKvTile];
    V::load(k + d).store_half(halves);
    for (uint32_t i = 0; i < kKvTile; ++i) k_out[size_t{d + i} * kKvTile] = halves[i];
  }
}

// One part of a latent row: a latent or a rotated key.
template <class V>
void store_int8_part(const float* x, uint32_t n, int8_t* out, float* scale) {
  const HeadScale s = head_scale<V>(x, n);
  for (uint32_t d = 0; d < n; d += 16) quantize<V>(x + d, s.inverse, out + d);
  *scale = s.scale;
}

template <class V>
void store_latent(const KvPlanes& kv, BlockId block, uint32_t slot, const float* row) {
  if (kv.type == KvType::kF16) {
    uint16_t* out = latent_row<uint16_t>(kv, block, slot);
    for (uint32_t d = 0; d < kv.head_dim; d += 16) V::load(row + d).store_half(out + d);
    return;
  }
  const uint32_t rotated = kv.head_dim - kv.latent;
  alignas(64) float key[kMaxRotatedKey];
  rotate_head<V>(row + kv.latent, rotated, 1.0f, 1.0f, key);
  int8_t* out = latent_row<int8_t>(kv, block, slot);
  store_int8_part<V>(row, kv.latent, out, latent_scale(kv, block, slot));
  store_int8_part<V>(key, rotated, out + kv.latent, rotated_scale(kv, block, slot));
}

template <class V>
void store_kv(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot, const float* k,
              const float* v) {
  if (kv.latent != 0)
    store_latent<V>(kv, block, slot, k);
  else if (kv.type == KvType::kInt8)
    store_int8<V>(kv, kv_head, block, slot, k, v);
  else
    store_f16<V>(kv, kv_head, block, slot, k, v);
}

}  // namespace kvasir::vec
