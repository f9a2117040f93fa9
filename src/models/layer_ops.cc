#include "models/layer_ops.h"

#include <algorithm>
#include <cstring>

namespace kvasir {

void LayerOps::norm(const NormWeights& weights, const float* x, uint32_t n, float* y) const {
  if (config_.norm == NormKind::kLayer)
    kernels_.layer_norm(x, weights.weight, weights.bias, n, config_.norm_eps, y);
  else
    kernels_.rms_norm(x, weights.weight, n, config_.norm_eps, y);
}

// Whether a part's last product may add to the residual stream itself.
bool LayerOps::adds_at_once() const {
  return !config_.branch_norms && config_.residual_scale == 1.0f;
}

// Not where what a part computed is added to the rows of the stream without a barrier behind it.
bool LayerOps::rows_alone(uint32_t rows) const {
  return rows <= StepBuffers::kOwnRows && adds_at_once();
}

const NormedRows& LayerOps::input_rows(Worker& worker, uint32_t rows, const NormWeights& weights) const {
  const bool alone = rows_alone(rows);
  const NormedRows& out = alone ? buffers_.own_normed(worker.index()) : buffers_.normed;
  const uint32_t d = config_.hidden_dim;
  const auto [begin, end] = alone ? std::pair<uint64_t, uint64_t>{0, rows} : worker.share(rows);
  for (uint64_t r = begin; r < end; ++r) {
    float* y = out.values + r * d;
    if (weights.present())
      norm(weights, buffers_.x + r * d, d, y);
    else
      std::memcpy(y, buffers_.x + r * d, d * sizeof(float));
    kernels_.quantize_rows(y, d, 1, d, out.q, static_cast<uint32_t>(r));
  }
  if (!alone) worker.barrier();
  return out;
}

void LayerOps::multiply(const Worker& worker, const Columns& columns, const QuantRows& x, const float* xf,
                        uint32_t rows, float* out) const {
  const PackedMatrix part = columns.w.part(columns.begin, columns.end);
  kernels_.linear({.w = &part,
                   .x = &x,
                   .xf = xf,
                   .rows = rows,
                   .panel_begin = 0,
                   .panel_end = part.panels(),
                   .out = out,
                   .ldo = part.n,
                   .bias = columns.bias == nullptr ? nullptr : columns.bias + columns.begin * kPanelCols,
                   .scratch = buffers_.scratch(worker.index())});
}

// Each worker moves columns of its own, from the first row on, so that none is overwritten before it is read.
void LayerOps::move_together(Worker& worker, std::span<const uint32_t> from, float* values, uint32_t columns,
                             const QuantRows* q) const {
  const auto [first, last] = worker.share((columns + kGroup - 1) / kGroup);
  if (first == last) return;
  const auto begin = static_cast<uint32_t>(first) * kGroup;
  const uint32_t count = std::min(columns, static_cast<uint32_t>(last) * kGroup) - begin;
  for (size_t i = 0; i < from.size(); ++i)
    std::memmove(values + i * columns + begin, values + size_t{from[i]} * columns + begin,
                 count * sizeof(float));
  if (q != nullptr)
    kernels_.quantize_rows(values + begin, columns, static_cast<uint32_t>(from.size()), count,
                           advance_groups(*q, first), 0);
}

uint64_t LayerOps::piece_of(const Worker& worker, uint64_t panels) {
  constexpr uint64_t kTogether = 8;  // what kernels of many rows take at once
  constexpr uint64_t kPieces = 8;    // of a share, at most
  const uint64_t share = panels / worker.count();
  return std::max<uint64_t>(1, (share / kPieces + kTogether - 1) / kTogether) * kTogether;
}

void LayerOps::products(Worker& worker, std::span<const Product> list, const QuantRows& x, const float* xf,
                        uint32_t rows) const {
  uint64_t total = 0;
  for (const Product& p : list) total += p.w->panels();
  Deal deal = worker.deal(total, 2, piece_of(worker, total));
  for (uint64_t begin, end; deal.next(begin, end);) part_of_products(worker, list, x, xf, rows, begin, end);
}

// Panels [begin, end) of all matrices of a phase.
void LayerOps::part_of_products(const Worker& worker, std::span<const Product> list, const QuantRows& x,
                                const float* xf, uint32_t rows, uint64_t begin, uint64_t end) const {
  uint64_t first = 0;
  for (const Product& p : list) {
    const uint64_t panels = p.w->panels();
    const uint64_t lo = std::clamp(begin, first, first + panels) - first;
    const uint64_t hi = std::clamp(end, first, first + panels) - first;
    if (lo < hi)
      kernels_.linear({.w = p.w,
                       .x = p.x != nullptr ? p.x : &x,
                       .xf = p.xf != nullptr ? p.xf : xf,
                       .rows = rows,
                       .panel_begin = static_cast<uint32_t>(lo),
                       .panel_end = static_cast<uint32_t>(hi),
                       .out = p.out,
                       .ldo = p.ldo,
                       .bias = p.bias,
                       .mode = p.mode,
                       .scratch = buffers_.scratch(worker.index())});
    first += panels;
  }
}

void LayerOps::add_branch(Worker& worker, const PackedMatrix& w, const float* bias, const QuantRows& x,
                          const float* xf, uint32_t rows, const NormWeights& post_norm) const {
  const uint32_t d = config_.hidden_dim;
  const bool at_once = adds_at_once();
  const Product product = {.w = &w,
                           .bias = bias,
                           .out = at_once ? buffers_.x : buffers_.branch,
                           .ldo = d,
                           .mode = at_once ? LinearOutput::kAdd : LinearOutput::kStore};
  products(worker, {&product, 1}, x, xf, rows);
  worker.barrier();
  if (!at_once) add_rows(worker, rows, post_norm);
}

void LayerOps::add_columns(Worker& worker, uint32_t first, uint32_t count, uint32_t rows,
                           const NormWeights& post_norm) const {
  const size_t d = config_.hidden_dim;
  const bool at_once = adds_at_once();
  for (uint32_t r = 0; at_once && r < rows; ++r)
    kernels_.add(buffers_.branch + r * d + first, count, buffers_.x + r * d + first);
  worker.barrier();
  if (!at_once) add_rows(worker, rows, post_norm);
}

// What a part computed, of this worker's share of the rows.
void LayerOps::add_rows(Worker& worker, uint32_t rows, const NormWeights& post_norm) const {
  const uint32_t d = config_.hidden_dim;
  const auto [begin, end] = worker.share(rows);
  for (uint64_t r = begin; r < end; ++r) {
    float* y = buffers_.branch + r * d;
    if (post_norm.present()) norm(post_norm, y, d, y);
    if (config_.residual_scale != 1.0f) kernels_.scale(config_.residual_scale, d, y);
    kernels_.add(y, d, buffers_.x + r * d);
  }
  // Whoever reads these rows next is the same worker, or waits at a barrier first.
}

}  // namespace kvasir
