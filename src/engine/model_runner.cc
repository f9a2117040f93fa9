#include "engine/model_runner.h"

#include "base/check.h"

namespace kvasir {
namespace {

constexpr uint32_t kBestOnly = UINT32_MAX;

}  // namespace

ModelRunner::ModelRunner(CausalLm& model, const KvLayout& layout, uint32_t blocks,
                         const CausalLm::Limits& limits, uint32_t max_num_seqs)
    : model_(model),
      store_(layout, blocks),
      limits_(limits),
      vocab_(model.config().vocab_size),
      logits_(size_t{limits.max_logit_rows} * vocab_ * sizeof(float)),
      best_(limits.max_logit_rows) {
  tokens_.reserve(limits.max_rows);
  positions_.reserve(limits.max_rows);
  sequences_.reserve(max_num_seqs);
  logit_rows_.reserve(limits.max_logit_rows);
  slots_.reserve(limits.max_logit_rows);
}

void ModelRunner::copy_blocks(const SchedulerOutput& plan) {
  for (const BlockCopy& copy : plan.copies) store_.copy_block(copy.from, copy.to);
}

void ModelRunner::run(const SchedulerOutput& plan, std::span<const uint32_t> wanted,
                      const HiddenTap& hidden) {
  CHECK(plan.rows <= limits_.max_rows && plan.logit_rows <= limits_.max_logit_rows);
  CHECK(wanted.size() == plan.logit_rows);
  tokens_.clear();
  positions_.clear();
  sequences_.clear();
  logit_rows_.clear();
  slots_.clear();
  for (const SchedulerOutput::Item& item : plan.items) {
    const Sequence& s = *item.sequence;
    const uint32_t first_row = static_cast<uint32_t>(tokens_.size());
    sequences_.push_back({first_row, item.rows, s.table.tables()});
    for (uint32_t p = s.computed; p < s.computed + item.rows; ++p) {
      tokens_.push_back(s.token_at(p));
      positions_.push_back(static_cast<int32_t>(p));
    }
    for (uint32_t r = item.rows - item.logit_rows; r < item.rows; ++r) logit_rows_.push_back(first_row + r);
  }
  uint32_t whole = 0;
  for (const uint32_t want : wanted) slots_.push_back(want == kAllLogits ? whole++ : kBestOnly);
  model_.forward({.tokens = tokens_,
                  .positions = positions_,
                  .sequences = sequences_,
                  .logit_rows = logit_rows_,
                  .logits_wanted = wanted,
                  .hidden = hidden},
                 store_, logits_.as<float>().subspan(0, whole * vocab_), best_);
}

RowLogits ModelRunner::logits(uint32_t logit_row) {
  const uint32_t slot = slots_[logit_row];
  if (slot == kBestOnly) return {{}, &best_[logit_row]};
  return {logits_.as<float>().subspan(slot * vocab_, vocab_)};
}

}  // namespace kvasir
