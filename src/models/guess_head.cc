#include "models/guess_head.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "base/check.h"

namespace kvasir {

GuessHead::GuessHead(std::vector<TokenId> ids, OwnMatrix rows, const ModelConfig& target)
    : ids_(std::move(ids)),
      rows_(std::move(rows)),
      scale_(target.logit_scale),
      softcap_(target.final_softcap) {
  CHECK(!ids_.empty() && rows_.packed().n == ids_.size());
  CHECK(std::is_sorted(ids_.begin(), ids_.end()));
}

void GuessHead::run(Worker& worker, const KernelTable& kernels, const QuantRows& x, uint32_t count,
                    float* out, size_t ldo, std::byte* scratch) const {
  const PackedMatrix& w = rows_.packed();
  const auto [begin, end] = worker.share(w.panels(), 2);
  if (begin == end || count == 0) return;
  kernels.linear({.w = &w,
                  .x = &x,
                  .rows = count,
                  .panel_begin = static_cast<uint32_t>(begin),
                  .panel_end = static_cast<uint32_t>(end),
                  .out = out,
                  .ldo = ldo,
                  .scratch = scratch});
  const auto first = static_cast<uint32_t>(begin) * kPanelCols;
  const uint32_t columns = std::min(w.n, static_cast<uint32_t>(end) * kPanelCols) - first;
  for (uint32_t i = 0; i < count; ++i) {
    float* part = out + i * ldo + first;
    if (scale_ != 1.0f) kernels.scale(scale_, columns, part);
    if (softcap_ != 0.0f) kernels.softcap(softcap_, columns, part);
  }
}

// Ids ascend, so that ties fall as they would among the ids themselves.
void GuessHead::take_best(const float* logits, const KernelTable& kernels, BestLogits& best) const {
  best.add(logits, rows_.packed().n, 0, kernels);
  const auto named = [this](TokenId& index) {
    if (index != kNoToken) index = ids_[static_cast<size_t>(index)];
  };
  for (uint32_t i = 0; i < best.count; ++i) named(best.heap[i].id);
  named(best.unsound.id);
}

void GuessHead::spread(const float* logits, std::span<float> row) const {
  std::fill(row.begin(), row.end(), -std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < ids_.size(); ++i) row[static_cast<size_t>(ids_[i])] = logits[i];
}

OwnMatrix rows_of_head(const CausalLm& target, std::span<const TokenId> ids) {
  const uint32_t d = target.config().hidden_dim;
  std::vector<float> values(ids.size() * d);
  for (size_t i = 0; i < ids.size(); ++i) target.read_head_row(ids[i], values.data() + i * d);
  return OwnMatrix::q8_0(values, static_cast<uint32_t>(ids.size()), d);
}

}  // namespace kvasir
