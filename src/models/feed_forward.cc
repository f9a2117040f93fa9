#include "models/feed_forward.h"

#include <algorithm>

namespace kvasir {

// A worker activates the very columns it computed, a stretch at a time while they are still in its cache.
void GatedFeedForward::hidden(Worker& worker, const FeedForwardWeights& weights, const NormedRows& x,
                              uint32_t rows) const {
  const uint32_t panels = weights.up.panels();
  const uint32_t piece =
      StepBuffers::stretch(rows, static_cast<uint32_t>(LayerOps::piece_of(worker, panels)));
  Deal deal = worker.deal(panels, 2, piece);
  for (uint64_t begin, end; deal.next(begin, end);)
    gate_and_up(worker, weights, x, rows, static_cast<uint32_t>(begin), static_cast<uint32_t>(end));
}

void GatedFeedForward::run(Worker& worker, const FeedForwardWeights& weights, const NormedRows& x,
                           uint32_t rows, const NormWeights& post_norm, PhaseClock& clock) const {
  const StepBuffers& b = ops_.buffers();
  hidden(worker, weights, x, rows);
  worker.barrier();
  clock.mark(StepPhase::kGateUp);
  ops_.add_branch(worker, weights.down, weights.down_bias, hidden_rows(weights), b.ffn, rows, post_norm);
  clock.mark(StepPhase::kDown);
}

// act(gate) * up of the columns of some panels, quantised.
void GatedFeedForward::gate_and_up(const Worker& worker, const FeedForwardWeights& weights,
                                   const NormedRows& x, uint32_t rows, uint32_t panel_begin,
                                   uint32_t panel_end) const {
  const StepBuffers& b = ops_.buffers();
  const KernelTable& kernels = ops_.kernels();
  const uint32_t f = weights.up.n;
  const uint32_t first = panel_begin * kPanelCols;
  const uint32_t count = std::min(f, panel_end * kPanelCols) - first;
  float* gate = b.gate_tile(worker.index());
  float* up = b.up_tile(worker.index());
  const bool gated = weights.gate.present();
  const auto multiply = [&](const PackedMatrix& w, const float* bias, float* out) {
    ops_.multiply(worker, {w, bias, panel_begin, panel_end}, x.q, x.values, rows, out);
  };
  if (gated) multiply(weights.gate, weights.gate_bias, gate);
  multiply(weights.up, weights.up_bias, up);
  kernels.gated_act(ops_.config().activation, gated ? gate : up, up, rows * count, gate);
  kernels.quantize_rows(gate, count, rows, count, advance_groups(hidden_rows(weights), first / kGroup), 0);
  if (dtype_info(weights.down.type).block_elements > 1) return;
  for (size_t r = 0; r < rows; ++r) std::copy_n(gate + r * count, count, b.ffn + r * f + first);
}

}  // namespace kvasir
