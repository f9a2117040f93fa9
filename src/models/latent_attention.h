#pragma once

#include "models/attention_runner.h"
#include "models/last_rows.h"
#include "models/layer_ops.h"
#include "models/step_profile.h"

namespace kvasir {

// The attention part of a layer with multi-head latent attention (DeepSeek-V2, arXiv 2405.04434,
// section 2.1), always in its absorbed form: the keys' matrix is multiplied into the queries and the values'
// matrix into the results, so that heads attend to the cached rows themselves, and a row's bits are the same
// whether it is one of a prompt, decoded or verified (docs/numerics.md, rule 5).
class LatentAttention {
 public:
  // Everything outlives it. `max_rows`: of a step.
  LatentAttention(const LayerOps& ops, AttentionRunner& runner, uint32_t max_rows)
      : ops_(ops), runner_(runner), max_rows_(max_rows) {}

  // Over the prepared rows x of the planned batch; adds to the residual stream. `last`: only its rows go on,
  // and x holds them moved together afterwards; null: all do. All threads together; ends at a barrier.
  void run(Worker& worker, const ForwardBatch& batch, const KvStore& kv, const LayerWeights& weights,
           uint32_t layer, const NormedRows& x, const LastRows* last, PhaseClock& clock) const;

 private:
  void project(Worker& worker, const LayerWeights& weights, const NormedRows& x, uint32_t rows) const;
  void absorb(Worker& worker, const LayerWeights& weights, uint32_t rows) const;
  void attend_last(Worker& worker, const LastRows& last, const KvStore& kv, uint32_t layer,
                   const NormedRows& x) const;
  void release(Worker& worker, const LayerWeights& weights, uint32_t rows) const;

  const LayerOps& ops_;
  AttentionRunner& runner_;
  uint32_t max_rows_;
};

}  // namespace kvasir
