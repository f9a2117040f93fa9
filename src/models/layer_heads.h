#pragma once

#include <cstdint>

#include "kvcache/kv_store.h"
#include "models/forward_batch.h"
#include "models/layer_ops.h"
#include "models/weights.h"

namespace kvasir {

// One layer's planes in the pool, as kernels want them.
KvPlanes kv_planes(const KvStore& kv, uint32_t layer);

// What lies between one layer's q, k and v products and its attention: norms of q and k, RoPE, and K and V
// into their slots; with MLA the latent's norm, RoPE, the cache row into its slot, and the queries' parts
// where absorption and attention read them. A row's heads of one KV head need nothing of other rows or heads,
// so whoever computes that KV head's attention may do it, if nobody else reads the slot in this layer.
class LayerHeads {
 public:
  // Everything outlives it. `max_rows`: of a step, which buffers have room for.
  LayerHeads(const LayerOps& ops, const LayerWeights& weights, uint32_t max_rows, const ForwardBatch& batch,
             const KvStore& kv, uint32_t layer);

  // Makes row `row` of the batch, which is one of sequence `sequence`, ready for attention under `kv_head`.
  void ready(uint32_t sequence, uint32_t row, uint32_t kv_head) const;

 private:
  void turn(float* head, const float* norms, uint32_t index, const float* cos) const;
  void ready_planes(uint32_t row, uint32_t kv_head, const float* cos) const;
  void ready_latent(uint32_t row, const float* cos) const;

  const LayerOps& ops_;
  const ModelConfig& config_;
  const LayerWeights& weights_;
  const StepBuffers& buffers_;
  const ForwardBatch& batch_;
  KvPlanes planes_;
  uint32_t max_rows_;
  uint32_t block_size_;
  uint32_t group_;     // KV group of the layer
  uint32_t units_;     // block ids per entry of its tables
  uint32_t unit_;      // this layer's among them
  const float* rope_;  // null: the layer has none
};

}  // namespace kvasir
