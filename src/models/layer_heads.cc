#include "models/layer_heads.h"

#include <algorithm>

#include "base/check.h"

namespace kvasir {

KvPlanes kv_planes(const KvStore& kv, uint32_t layer) {
  const KvLayout& layout = kv.layout();
  const KvLayout::Layer& place = layout.layer(layer);
  return {.base = kv.block(BlockId{0}) + place.offset_bytes,
          .block_stride = layout.block_bytes(),
          .block_size = layout.block_size(),
          .kv_heads = place.kv_heads,
          .head_dim = place.head_dim,
          .latent = place.latent,
          .type = layout.type(),
          .v_offset = place.latent == 0 ? place.plane_bytes : 0,
          .scale_offset = (place.latent == 0 ? 2 : 1) * place.plane_bytes};
}

LayerHeads::LayerHeads(const LayerOps& ops, const LayerWeights& weights, uint32_t max_rows,
                       const ForwardBatch& batch, const KvStore& kv, uint32_t layer)
    : ops_(ops),
      config_(ops.config()),
      weights_(weights),
      buffers_(ops.buffers()),
      batch_(batch),
      planes_(kv_planes(kv, layer)),
      max_rows_(max_rows),
      block_size_(kv.layout().block_size()),
      group_(kv.layout().layer(layer).group),
      units_(kv.layout().groups()[group_].units),
      unit_(kv.layout().layer(layer).unit),
      rope_(config_.ropes[layer] == LayerRope::kNone ? nullptr : buffers_.rope) {
  if (config_.ropes[layer] == LayerRope::kLocal) rope_ += size_t{max_rows} * config_.rope_dim;
}

// Norms a head, the index-th of q or of k, unless all heads of the row were normed together, and turns it.
void LayerHeads::turn(float* head, const float* norms, uint32_t index, const float* cos) const {
  const uint32_t hd = config_.head_dim;
  if (norms != nullptr && config_.head_norm != HeadNorm::kWholeRow) {
    const bool own = config_.head_norm == HeadNorm::kMaybeOwnWeights;
    ops_.norm({.weight = norms + (own ? size_t{index} * hd : 0)}, head, hd, head);
  }
  if (cos != nullptr)
    ops_.kernels().rope(config_.rope_kind, head, config_.rope_dim, cos, cos + config_.rope_dim / 2);
}

void LayerHeads::ready_planes(uint32_t row, uint32_t kv_head, const float* cos) const {
  const uint32_t hd = config_.head_dim;
  const uint32_t query_heads = config_.heads / config_.kv_heads;
  float* q = buffers_.q + size_t{row} * config_.q_dim();
  for (uint32_t h = kv_head * query_heads; h < (kv_head + 1) * query_heads; ++h)
    turn(q + size_t{h} * hd, weights_.q_norm, h, cos);
  turn(buffers_.k + size_t{row} * config_.kv_dim() + size_t{kv_head} * hd, weights_.k_norm, kv_head, cos);
}

void LayerHeads::ready_latent(uint32_t row, const float* cos) const {
  const MlaConfig& m = *config_.mla;
  const KernelTable& kernels = ops_.kernels();
  const StepBuffers::Mla& b = buffers_.mla;
  const uint32_t n = m.nope_dim, rotated = config_.rope_dim;
  const float* sin = cos + rotated / 2;
  for (uint32_t h = 0; h < config_.heads; ++h) {
    float* raw = b.raw_q + size_t{row} * config_.raw_q_dim() + size_t{h} * (n + rotated);
    kernels.rope(config_.rope_kind, raw + n, rotated, cos, sin);
    float* q = buffers_.q + size_t{row} * config_.q_dim() + size_t{h} * config_.head_dim;
    std::copy_n(raw + n, rotated, q + m.latent);
    std::copy_n(raw, n, b.nope + (size_t{h} * max_rows_ + row) * n);
    kernels.quantize_rows(raw, n, 1, n, b.nope_q[h], row);
  }
  float* k = buffers_.k + size_t{row} * config_.kv_dim();
  ops_.norm({.weight = weights_.mla.kv_a_norm}, k, m.latent, k);
  kernels.rope(config_.rope_kind, k + m.latent, rotated, cos, sin);
}

void LayerHeads::ready(uint32_t sequence, uint32_t row, uint32_t kv_head) const {
  const float* cos = rope_ == nullptr ? nullptr : rope_ + size_t{row} * config_.rope_dim;
  config_.mla ? ready_latent(row, cos) : ready_planes(row, kv_head, cos);
  const auto position = static_cast<uint32_t>(batch_.positions[row]);
  const BlockId block = batch_.sequences[sequence].tables[group_][position / block_size_ * units_ + unit_];
  DCHECK(block != kNoBlock);
  const size_t at = size_t{row} * config_.kv_dim() + size_t{kv_head} * config_.head_dim;
  ops_.kernels().store_kv(planes_, kv_head, block, position % block_size_, buffers_.k + at,
                          config_.mla ? nullptr : buffers_.v + at);
}

}  // namespace kvasir
