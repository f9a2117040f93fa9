#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "models/causal_lm.h"
#include "models/forward_batch.h"

namespace kvasir {

// The rows of a step that go on behind the last layer's K and V: those whose logits or hidden states somebody
// asked for. What the others would still compute in that layer, attention, output matrix and feed-forward
// part, nobody reads, so that most of a prompt is done with when its K and V are stored. Leaving them out
// touches no bit of the rows that stay (docs/numerics.md, rule 4). Everything is allocated at construction.
class LastRows {
 public:
  explicit LastRows(const CausalLm::Limits& limits);

  // `batch` outlives the step.
  void plan(const ForwardBatch& batch);

  // Whether enough rows fall away that the others are moved together.
  bool fewer() const { return fewer_; }
  // Ascending row indices of the step. Where a sequence wants some, all between its first and its last.
  std::span<const uint32_t> rows() const { return rows_; }
  // What the last layer's attention computes: those rows where they lie, the sequences that have some.
  const ForwardBatch& attended() const { return attended_; }
  // What comes after: the step's wishes in places among rows().
  const ForwardBatch& together() const { return together_; }

 private:
  void add_rows_of(const ForwardBatch::Sequence& sequence);
  uint32_t place_of(uint32_t row) const;

  std::vector<uint32_t> wanted_;  // rows of logits and of hidden states, ascending
  std::vector<uint32_t> rows_;
  std::vector<ForwardBatch::Sequence> sequences_;
  std::vector<uint32_t> logit_rows_, hidden_rows_;
  ForwardBatch attended_, together_;
  bool fewer_ = false;
};

}  // namespace kvasir
