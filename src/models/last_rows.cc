#include "models/last_rows.h"

#include <algorithm>
#include <iterator>

namespace kvasir {
namespace {

// Moving rows together and planning attention once more costs about as much as a few rows do.
constexpr size_t kLeastLeftOut = 8;

}  // namespace

LastRows::LastRows(const CausalLm::Limits& limits) {
  const size_t rows = limits.max_rows;
  wanted_.reserve(2 * rows);
  rows_.reserve(rows);
  sequences_.reserve(rows);
  logit_rows_.reserve(rows);
  hidden_rows_.reserve(rows);
}

void LastRows::plan(const ForwardBatch& batch) {
  for (auto* list : {&wanted_, &rows_, &logit_rows_, &hidden_rows_}) list->clear();
  sequences_.clear();
  std::set_union(batch.logit_rows.begin(), batch.logit_rows.end(), batch.hidden.rows.begin(),
                 batch.hidden.rows.end(), std::back_inserter(wanted_));
  for (const ForwardBatch::Sequence& sequence : batch.sequences) add_rows_of(sequence);
  fewer_ = rows_.size() + kLeastLeftOut <= batch.tokens.size();
  if (!fewer_) return;
  for (const uint32_t row : batch.logit_rows) logit_rows_.push_back(place_of(row));
  for (const uint32_t row : batch.hidden.rows) hidden_rows_.push_back(place_of(row));
  attended_ = batch;
  attended_.sequences = sequences_;
  together_ = batch;
  together_.logit_rows = logit_rows_;
  together_.hidden.rows = hidden_rows_;
}

// Sequences need not come in the order of their rows; rows() must.
void LastRows::add_rows_of(const ForwardBatch::Sequence& sequence) {
  const auto first = std::lower_bound(wanted_.begin(), wanted_.end(), sequence.first_row);
  const auto end = std::lower_bound(first, wanted_.end(), sequence.first_row + sequence.rows);
  if (first == end) return;
  ForwardBatch::Sequence cut = sequence;
  cut.first_row = *first;
  cut.rows = *std::prev(end) + 1 - *first;
  sequences_.push_back(cut);
  const auto middle = static_cast<std::ptrdiff_t>(rows_.size());
  for (uint32_t row = cut.first_row; row < cut.first_row + cut.rows; ++row) rows_.push_back(row);
  if (middle > 0 && rows_[static_cast<size_t>(middle) - 1] > cut.first_row)
    std::sort(rows_.begin(), rows_.end());
}

uint32_t LastRows::place_of(uint32_t row) const {
  return static_cast<uint32_t>(std::lower_bound(rows_.begin(), rows_.end(), row) - rows_.begin());
}

}  // namespace kvasir
