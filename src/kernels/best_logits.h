#pragma once

#include <cstdint>
#include <span>

#include "base/candidate.h"
#include "kernels/table.h"

namespace kvasir {

// A wish for all logits of a row rather than a number of its best.
inline constexpr uint32_t kAllLogits = UINT32_MAX;

// The best few of a row of logits, gathered piece by piece while the row is computed, so that the row itself
// need not be kept. Preference is ranks_before(); -infinity is never kept.
struct BestLogits {
  static constexpr uint32_t kMost = 64;

  uint32_t wanted = 0;  // 1..kMost
  uint32_t count = 0;   // fewer than wanted only where the row has fewer above -infinity
  // The lowest token whose logit is NaN or +infinity, and that logit; kNoToken: there is none.
  Candidate unsound;
  Candidate heap[kMost];  // [count], the least preferred first, else in no particular order

  std::span<const Candidate> list() const { return {heap, count}; }

  // Forgets everything; the `k` best of what follows are kept, 1 <= k <= kMost.
  void start(uint32_t k);
  // Takes in the logits of tokens first .. first + n - 1. Pieces may come in any order.
  void add(const float* x, uint32_t n, TokenId first, const KernelTable& kernels);
  // Takes in what another has gathered of other tokens.
  void merge(const BestLogits& other);

 private:
  bool full() const { return count == wanted; }
  // Whether a logit of this size can still matter.
  bool may_enter(float x) const;
  void offer(const Candidate& c);
  void note_unsound(const Candidate& c);
};

}  // namespace kvasir
