#pragma once

#include "models/layer_ops.h"
#include "models/step_profile.h"

namespace kvasir {

// The gated feed-forward part of a layer, down(act(gate(x)) * up(x)) (arXiv 2002.05202): one kind of several
// that a layer may have. Without a gate it is down(act(up(x)) * up(x)), of which ReLU makes its square (arXiv
// 2109.08668). It reads prepared rows and adds what it computes to the residual stream.
class GatedFeedForward {
 public:
  explicit GatedFeedForward(const LayerOps& ops) : ops_(ops) {}

  // This worker's share of act(gate(x)) * up(x), into buffers().ffn_q and, where `down` reads floats, into
  // buffers().ffn, rows of the width of `up`. All threads together; whoever reads it waits at a barrier
  // first.
  void hidden(Worker& worker, const FeedForwardWeights& weights, const NormedRows& x, uint32_t rows) const;

  // What hidden() leaves behind, for a product with `down`.
  QuantRows hidden_rows(const FeedForwardWeights& weights) const {
    QuantRows rows = ops_.buffers().ffn_q;
    rows.k = weights.up.n;
    return rows;
  }

  // All threads together; ends at a barrier.
  void run(Worker& worker, const FeedForwardWeights& weights, const NormedRows& x, uint32_t rows,
           const NormWeights& post_norm, PhaseClock& clock) const;

 private:
  void gate_and_up(const Worker& worker, const FeedForwardWeights& weights, const NormedRows& x,
                   uint32_t rows, uint32_t panel_begin, uint32_t panel_end) const;

  const LayerOps& ops_;
};

}  // namespace kvasir
