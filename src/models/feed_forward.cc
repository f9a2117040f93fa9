#include "models/feed_forward.h"

#include <algorithm>

namespace kvasir {
namespace {

// With many rows, gate and up go this many panels at a time: 128 columns of 512 rows fill half of a 1 MiB
// cache. With few, one stretch reads each matrix as one stream.
constexpr uint32_t kStretchRows = 24;
constexpr uint64_t kStretchPanels = 8;

}  // namespace

// A worker activates the very columns it computed, a stretch at a time while they are still in its cache.
void GatedFeedForward::run(Worker& worker, const FeedForwardWeights& weights, const NormedRows& x,
                           uint32_t rows, const NormWeights& post_norm, PhaseClock& clock) const {
  const StepBuffers& b = ops_.buffers();
  const auto [begin, end] = worker.share(weights.up.panels(), 2);
  const uint64_t stretch = rows >= kStretchRows ? kStretchPanels : end - begin;
  for (uint64_t panel = begin; panel < end; panel += stretch)
    gate_and_up(weights, x, rows, static_cast<uint32_t>(panel),
                static_cast<uint32_t>(std::min(end, panel + stretch)), b.scratch(worker.index()));
  worker.barrier();
  clock.mark(StepPhase::kGateUp);
  ops_.add_branch(worker, weights.down, weights.down_bias, b.ffn_q, b.gate, rows, post_norm);
  clock.mark(StepPhase::kDown);
}

// act(gate) * up of the columns of some panels, quantised.
void GatedFeedForward::gate_and_up(const FeedForwardWeights& weights, const NormedRows& x, uint32_t rows,
                                   uint32_t panel_begin, uint32_t panel_end, std::byte* scratch) const {
  const StepBuffers& b = ops_.buffers();
  const KernelTable& kernels = ops_.kernels();
  const uint32_t f = ops_.config().ffn_dim;
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
  kernels.quantize_rows(b.gate + first, f, rows, count, advance_groups(b.ffn_q, first / kGroup), 0);
}

}  // namespace kvasir
