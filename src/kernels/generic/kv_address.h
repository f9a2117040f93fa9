#pragma once

#include "kernels/table.h"

// Addresses inside KvPlanes, and which positions a row sees. `static` because translation units of every
// instruction set include this: a shared inline function could be kept in one compiled for AVX-512.
namespace kvasir {

inline constexpr uint32_t kKvTile = 16;  // tokens of a transposed K tile

// First element of the K tile that holds token slot `slot` of a block: [head_dim][16]. Element: uint16_t for
// f16, int8_t for int8.
template <class Element>
static inline Element* k_tile(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot) {
  const size_t head = size_t{kv_head} * kv.block_size * kv.head_dim;
  return reinterpret_cast<Element*>(kv.base + index_of(block) * kv.block_stride) + head +
         size_t{slot / kKvTile} * kKvTile * kv.head_dim;
}

// The V row of token slot `slot` of a block: [head_dim]; the next slot's row follows it.
template <class Element>
static inline Element* v_row(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot) {
  const size_t head = size_t{kv_head} * kv.block_size * kv.head_dim;
  return reinterpret_cast<Element*>(kv.base + index_of(block) * kv.block_stride + kv.v_offset) + head +
         size_t{slot} * kv.head_dim;
}

// The scale of K of token slot `slot` of an int8 block, and of V; the next slot's follows it.
static inline float* k_scale(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot) {
  return reinterpret_cast<float*>(kv.base + index_of(block) * kv.block_stride + kv.scale_offset) +
         size_t{kv_head} * kv.block_size + slot;
}
static inline float* v_scale(const KvPlanes& kv, uint32_t kv_head, BlockId block, uint32_t slot) {
  return k_scale(kv, kv.kv_heads + kv_head, block, slot);
}

// The row of token slot `slot` of a block of latent rows: [head_dim]; the next slot's follows it.
template <class Element>
static inline Element* latent_row(const KvPlanes& kv, BlockId block, uint32_t slot) {
  return reinterpret_cast<Element*>(kv.base + index_of(block) * kv.block_stride) + size_t{slot} * kv.head_dim;
}

// The scale of the latent of token slot `slot` of an int8 block, and of its rotated key.
static inline float* latent_scale(const KvPlanes& kv, BlockId block, uint32_t slot) {
  return k_scale(kv, 0, block, slot);
}
static inline float* rotated_scale(const KvPlanes& kv, BlockId block, uint32_t slot) {
  return v_scale(kv, 0, block, slot);
}

// K of int8 is stored rotated: each block of so many values of a head by a Walsh-Hadamard transform (natural
// order, pairs of stride 1 first, then 2, 4, ..., not normalised), and queries are rotated alike and divided
// by the block's size, a power of two. Models with a few large K channels, as Qwen2.5 with its biases, would
// lose the others to one scale for all. Of a latent row that is the rotated key alone: the latent, which has
// been normed, is read as V too. 0: head sizes without a power of two of at least 32 are not rotated.
static inline uint32_t rotated_block(uint32_t head_dim) {
  const uint32_t power = head_dim & (0 - head_dim);
  return power >= 32 ? power : 0;
}

// The first position that the row at `position` sees; the last is its own.
static inline uint32_t first_visible(uint32_t position, uint32_t window) {
  return window != 0 && position + 1 > window ? position + 1 - window : 0;
}

}  // namespace kvasir
