#include "models/layer_heads.h"

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
          .type = layout.type(),
          .v_offset = place.plane_bytes,
          .scale_offset = 2 * place.plane_bytes};
}

LayerHeads::LayerHeads(const ModelConfig& config, const KernelTable& kernels, const LayerWeights& weights,
                       const StepBuffers& buffers, uint32_t rope_rows, const ForwardBatch& batch,
                       const KvStore& kv, uint32_t layer)
    : config_(config),
      kernels_(kernels),
      weights_(weights),
      buffers_(buffers),
      batch_(batch),
      planes_(kv_planes(kv, layer)),
      block_size_(kv.layout().block_size()),
      group_(kv.layout().layer(layer).group),
      units_(kv.layout().groups()[group_].units),
      unit_(kv.layout().layer(layer).unit),
      rope_(buffers.rope) {
  if (config.local_rope && config.windows[layer] != 0) rope_ += size_t{rope_rows} * config.rope_dim;
}

void LayerHeads::turn(float* head, const float* norm, const float* cos) const {
  const uint32_t hd = config_.head_dim;
  if (norm != nullptr) kernels_.rms_norm(head, norm, hd, config_.norm_eps, head);
  kernels_.rope(config_.rope_kind, head, config_.rope_dim, cos, cos + config_.rope_dim / 2);
}

void LayerHeads::ready(uint32_t sequence, uint32_t row, uint32_t kv_head) const {
  const uint32_t hd = config_.head_dim;
  const uint32_t query_heads = config_.heads / config_.kv_heads;
  const float* cos = rope_ + size_t{row} * config_.rope_dim;
  float* q = buffers_.q + size_t{row} * config_.q_dim() + size_t{kv_head} * query_heads * hd;
  for (uint32_t h = 0; h < query_heads; ++h) turn(q + size_t{h} * hd, weights_.q_norm, cos);
  float* k = buffers_.k + size_t{row} * config_.kv_dim() + size_t{kv_head} * hd;
  turn(k, weights_.k_norm, cos);
  const auto position = static_cast<uint32_t>(batch_.positions[row]);
  const BlockId block = batch_.sequences[sequence].tables[group_][position / block_size_ * units_ + unit_];
  DCHECK(block != kNoBlock);
  kernels_.store_kv(planes_, kv_head, block, position % block_size_, k,
                    buffers_.v + size_t{row} * config_.kv_dim() + size_t{kv_head} * hd);
}

}  // namespace kvasir
