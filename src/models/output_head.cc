#include "models/output_head.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "models/layer_ops.h"

namespace kvasir {
namespace {

// A tile of up to this size is still in the cache when its rows are looked at.
constexpr uint32_t kTileFloats = 32 << 10;
constexpr uint32_t kLeastPanels = 2;  // kernels take panels in pairs

bool all_wanted(const ForwardBatch& batch) {
  return std::all_of(batch.logits_wanted.begin(), batch.logits_wanted.end(),
                     [](uint32_t wanted) { return wanted == kAllLogits; });
}

}  // namespace

OutputHead::OutputHead(const ModelConfig& config, const CausalLm::Limits& limits, const KernelTable& kernels,
                       uint32_t threads)
    : kernels_(kernels),
      vocab_(config.vocab_size),
      scale_(config.logit_scale),
      softcap_(config.final_softcap),
      max_rows_(limits.max_logit_rows),
      tile_floats_(std::max(kTileFloats, max_rows_ * kLeastPanels * kPanelCols)),
      tiles_(size_t{threads} * tile_floats_ * sizeof(float)),
      found_(size_t{threads} * max_rows_) {}

// Those whose logits are wanted, from the first on.
uint32_t OutputHead::tokens(const ForwardBatch& batch) const {
  return batch.head_tokens == 0 ? vocab_ : std::min(vocab_, batch.head_tokens);
}

// Panels [begin, end) for all rows into out[rows][ldo], whose first column is the first of these panels.
void OutputHead::multiply(const Args& args, uint32_t begin, uint32_t end, float* out, size_t ldo) const {
  PackedMatrix part = args.weights;
  part.data = args.weights.panel(begin);
  part.n = std::min(tokens(args.batch), end * kPanelCols) - begin * kPanelCols;
  const auto rows = static_cast<uint32_t>(args.batch.logit_rows.size());
  kernels_.linear({.w = &part,
                   .x = &args.x,
                   .xf = args.xf,
                   .rows = rows,
                   .panel_begin = 0,
                   .panel_end = end - begin,
                   .out = out,
                   .ldo = ldo,
                   .scratch = args.scratch});
  for (uint32_t i = 0; i < rows; ++i) {
    if (scale_ != 1.0f) kernels_.scale(scale_, part.n, out + i * ldo);
    if (softcap_ != 0.0f) kernels_.softcap(softcap_, part.n, out + i * ldo);
  }
}

void OutputHead::run(Worker& worker, const Args& args) {
  const auto rows = static_cast<uint32_t>(args.batch.logit_rows.size());
  const uint32_t panels = (tokens(args.batch) + kPanelCols - 1) / kPanelCols;
  if (all_wanted(args.batch)) {
    Deal deal = worker.deal(panels, kLeastPanels, LayerOps::piece_of(worker, panels));
    for (uint64_t begin, end; deal.next(begin, end);)
      multiply(args, static_cast<uint32_t>(begin), static_cast<uint32_t>(end),
               args.logits.data() + begin * kPanelCols, vocab_);
    return;
  }
  BestLogits* found = found_.data() + size_t{worker.index()} * max_rows_;
  for (uint32_t i = 0; i < rows; ++i) {
    if (args.batch.wanted(i) != kAllLogits) found[i].start(args.batch.wanted(i));
  }
  float* tile = tiles_.as<float>().data() + size_t{worker.index()} * tile_floats_;
  const uint32_t stretch = tile_floats_ / rows / (kLeastPanels * kPanelCols) * kLeastPanels;
  Deal deal =
      worker.deal(panels, kLeastPanels, std::min<uint64_t>(stretch, LayerOps::piece_of(worker, panels)));
  for (uint64_t begin, end; deal.next(begin, end);) {
    const auto first = static_cast<uint32_t>(begin), count = static_cast<uint32_t>(end - begin);
    multiply(args, first, first + count, tile, size_t{count} * kPanelCols);
    take_tile(args, tile, count, static_cast<TokenId>(first * kPanelCols), found);
  }
  worker.barrier();
  merge(worker, args);
}

// What a tile of so many panels from token `first` on holds, to where each row's logits go.
void OutputHead::take_tile(const Args& args, const float* tile, uint32_t panels, TokenId first,
                           BestLogits* found) {
  const size_t ldo = size_t{panels} * kPanelCols;
  const auto offset = static_cast<uint32_t>(first);
  const uint32_t n = std::min(tokens(args.batch) - offset, panels * kPanelCols);
  float* whole = args.logits.data();
  for (uint32_t i = 0; i < args.batch.logit_rows.size(); ++i) {
    const float* row = tile + i * ldo;
    if (args.batch.wanted(i) != kAllLogits) {
      found[i].add(row, n, first, kernels_);
      continue;
    }
    std::memcpy(whole + offset, row, n * sizeof(float));
    whole += vocab_;
  }
}

void OutputHead::merge(Worker& worker, const Args& args) {
  const auto [begin, end] = worker.share(args.batch.logit_rows.size());
  for (uint64_t i = begin; i < end; ++i) {
    const uint32_t wanted = args.batch.wanted(i);
    if (wanted == kAllLogits) continue;
    args.best[i].start(wanted);
    for (uint32_t t = 0; t < worker.count(); ++t) args.best[i].merge(found_[size_t{t} * max_rows_ + i]);
  }
}

}  // namespace kvasir
