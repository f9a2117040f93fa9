#include "models/feed_forward.h"

#include <algorithm>
#include <span>

namespace kvasir {

// A worker activates the very columns it computed, a stretch at a time while they are still in its cache.
void GatedFeedForward::hidden(const Worker& worker, const FeedForwardWeights& weights, const NormedRows& x,
                              uint32_t rows) const {
  const auto share = worker.share(weights.up.panels(), 2);
  const auto begin = static_cast<uint32_t>(share.first), end = static_cast<uint32_t>(share.second);
  const uint32_t stretch = LayerOps::stretch(rows, end - begin);
  for (uint32_t panel = begin; panel < end; panel += stretch)
    gate_and_up(weights, x, rows, panel, std::min(end, panel + stretch),
                ops_.buffers().scratch(worker.index()));
}

void GatedFeedForward::run(Worker& worker, const FeedForwardWeights& weights, const NormedRows& x,
                           uint32_t rows, const NormWeights& post_norm, PhaseClock& clock) const {
  const StepBuffers& b = ops_.buffers();
  hidden(worker, weights, x, rows);
  worker.barrier();
  clock.mark(StepPhase::kGateUp);
  ops_.add_branch(worker, weights.down, weights.down_bias, hidden_rows(weights), b.gate, rows, post_norm);
  clock.mark(StepPhase::kDown);
}

// act(gate) * up of the columns of some panels, quantised.
void GatedFeedForward::gate_and_up(const FeedForwardWeights& weights, const NormedRows& x, uint32_t rows,
                                   uint32_t panel_begin, uint32_t panel_end, std::byte* scratch) const {
  const StepBuffers& b = ops_.buffers();
  const KernelTable& kernels = ops_.kernels();
  const uint32_t f = weights.up.n;
  const LayerOps::Product parts[] = {{&weights.gate, weights.gate_bias, b.gate, f},
                                     {&weights.up, weights.up_bias, b.up, f}};
  const bool gated = weights.gate.present();
  for (const LayerOps::Product& p : std::span(parts).subspan(gated ? 0 : 1))
    kernels.linear({.w = p.w,
                    .x = &x.q,
                    .xf = x.values,
                    .rows = rows,
                    .panel_begin = panel_begin,
                    .panel_end = panel_end,
                    .out = p.out,
                    .ldo = p.ldo,
                    .bias = p.bias,
                    .mode = p.mode,
                    .scratch = scratch});
  const uint32_t first = panel_begin * kPanelCols;
  const uint32_t count = std::min(f, panel_end * kPanelCols) - first;
  for (uint32_t r = 0; r < rows; ++r) {
    float* out = b.gate + r * static_cast<size_t>(f) + first;
    const float* up = b.up + r * static_cast<size_t>(f) + first;
    kernels.gated_act(ops_.config().activation, gated ? out : up, up, count, out);
  }
  const QuantRows quantised = advance_groups(hidden_rows(weights), first / kGroup);
  kernels.quantize_rows(b.gate + first, f, rows, count, quantised, 0);
}

}  // namespace kvasir
