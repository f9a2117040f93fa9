#include "models/medusa_heads.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/check.h"

namespace kvasir {

size_t MedusaWeights::bytes() const {
  size_t sum = 0;
  for (const auto& blocks : heads) {
    for (const Block& block : blocks) sum += block.weight.bytes();
  }
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (i == 0 || outputs[i] != outputs[0])
      sum += outputs[i]->rows().panels() * outputs[i]->rows().panel_bytes;
  }
  return sum;
}

MedusaHeads::MedusaHeads(MedusaWeights weights, const KernelTable& kernels, ThreadPool& pool,
                         uint32_t max_sequences)
    : weights_(std::move(weights)),
      kernels_(kernels),
      pool_(pool),
      max_rows_(max_sequences * count()),
      width_(weights_.width()) {
  CHECK(weights_.outputs.size() == weights_.heads.size());
  for (const auto& output : weights_.outputs) stride_ = std::max(stride_, output->stride());
  const size_t values = size_t{max_rows_} * width_ * sizeof(float);
  states_ = AlignedBuffer(values);
  products_ = AlignedBuffer(values);
  ones_ = AlignedBuffer(width_ * sizeof(float));
  std::ranges::fill(ones_.as<float>(), 1.0f);
  quantised_ = AlignedBuffer(quant_rows_bytes(max_rows_, width_));
  logits_ = AlignedBuffer(max_rows_ * stride_ * sizeof(float));
  scratch_ = AlignedBuffer(pool.size() * kLinearScratchBytes);
  x_ = states_.as<float>().data();
  y_ = products_.as<float>().data();
  q_ = carve_quant_rows(quantised_.data(), max_rows_, width_);
}

std::byte* MedusaHeads::scratch(const Worker& worker) const {
  return scratch_.data() + worker.index() * kLinearScratchBytes;
}

void MedusaHeads::run(std::span<const uint32_t> rows_of_head) {
  CHECK(rows_of_head.size() <= weights_.heads.size());
  CHECK(std::accumulate(rows_of_head.begin(), rows_of_head.end(), 0u) <= max_rows_);
  pool_.run([&](Worker& worker) { run_worker(worker, rows_of_head); });
}

void MedusaHeads::run_worker(Worker& worker, std::span<const uint32_t> rows_of_head) {
  const uint32_t rows = std::accumulate(rows_of_head.begin(), rows_of_head.end(), 0u);
  for (size_t block = 0; block < weights_.heads[0].size(); ++block) {
    quantize_share(worker, rows);
    worker.barrier();
    run_blocks(worker, rows_of_head, block);
    worker.barrier();
    const auto [begin, end] = worker.share(rows);
    for (uint64_t r = begin; r < end; ++r) {
      kernels_.gated_act(Activation::kSilu, y_ + r * width_, ones_.as<float>().data(), width_,
                         y_ + r * width_);
      kernels_.add(y_ + r * width_, width_, x_ + r * width_);
    }
  }
  quantize_share(worker, rows);
  worker.barrier();
  run_outputs(worker, rows_of_head);
}

void MedusaHeads::quantize_share(const Worker& worker, uint32_t rows) const {
  const auto [begin, end] = worker.share(rows);
  kernels_.quantize_rows(x_ + begin * width_, width_, static_cast<uint32_t>(end - begin), width_, q_,
                         static_cast<uint32_t>(begin));
}

// y = W x + b of one block of all heads, the panels of all of them dealt out together.
void MedusaHeads::run_blocks(Worker& worker, std::span<const uint32_t> rows_of_head, size_t block) {
  const uint64_t panels = weights_.heads[0][block].weight.packed().panels();
  const auto [begin, end] = worker.share(panels * rows_of_head.size(), 2);
  uint32_t row = 0;
  for (size_t h = 0; h < rows_of_head.size(); ++h) {
    const uint64_t first = h * panels;
    const uint64_t lo = std::clamp(begin, first, first + panels) - first;
    const uint64_t hi = std::clamp(end, first, first + panels) - first;
    const MedusaWeights::Block& w = weights_.heads[h][block];
    const QuantRows x = advance_groups(q_, size_t{row} * width_ / kGroup);
    if (lo < hi && rows_of_head[h] > 0)
      kernels_.linear({.w = &w.weight.packed(),
                       .x = &x,
                       .rows = rows_of_head[h],
                       .panel_begin = static_cast<uint32_t>(lo),
                       .panel_end = static_cast<uint32_t>(hi),
                       .out = y_ + size_t{row} * width_,
                       .ldo = width_,
                       .bias = w.bias.empty() ? nullptr : w.bias.data(),
                       .scratch = scratch(worker)});
    row += rows_of_head[h];
  }
}

// Rows of heads that share an output head go through it together.
void MedusaHeads::run_outputs(Worker& worker, std::span<const uint32_t> rows_of_head) {
  uint32_t row = 0;
  for (size_t h = 0; h < rows_of_head.size();) {
    const GuessHead& output = *weights_.outputs[h];
    uint32_t rows = 0;
    for (; h < rows_of_head.size() && weights_.outputs[h].get() == &output; ++h) rows += rows_of_head[h];
    const QuantRows x = advance_groups(q_, size_t{row} * width_ / kGroup);
    output.run(worker, kernels_, x, rows, logits_.as<float>().data() + row * stride_, stride_,
               scratch(worker));
    row += rows;
  }
}

}  // namespace kvasir
