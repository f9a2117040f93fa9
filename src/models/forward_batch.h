#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "kernels/best_logits.h"

namespace kvasir {

// Hidden states that a pass hands out beside its logits: of some of its rows, the residual stream at some
// points on its way through the layers. Point l is in front of layer l, the number of layers is behind the
// last, kOutputNorm what the output head reads.
struct HiddenTap {
  static constexpr uint32_t kOutputNorm = UINT32_MAX;

  std::span<const uint32_t> rows;    // ascending row indices; none: nothing is handed out
  std::span<const uint32_t> points;  // ascending
  float* out = nullptr;              // [rows][points][hidden]
};

// The rows of one step: prompt chunks, single decodes and drafts of many sequences, flat. Each sequence's
// rows are consecutive, their positions ascending by one.
struct ForwardBatch {
  struct Sequence {
    uint32_t first_row = 0;
    uint32_t rows = 0;
    // One block table per KV group: table entry e of a group with u units starts at tables[group][e * u].
    // Entries that left a window hold kNoBlock and are never read.
    std::span<const BlockId* const> tables;
  };
  std::span<const TokenId> tokens;     // [rows]
  std::span<const int32_t> positions;  // [rows]
  std::span<const Sequence> sequences;
  std::span<const uint32_t> logit_rows;  // ascending row indices whose logits are wanted
  // For each of logit_rows: kAllLogits, or how many of its best ones are enough (1 .. BestLogits::kMost).
  // Empty: all logits of all rows.
  std::span<const uint32_t> logits_wanted = {};
  // For guesses rather than answers, a part of the model: these layers only, ascending (empty: all), and
  // logits of the tokens below this one only (0: of all).
  std::span<const uint32_t> layers = {};
  uint32_t head_tokens = 0;
  HiddenTap hidden = {};

  uint32_t wanted(size_t logit_row) const {
    return logits_wanted.empty() ? kAllLogits : logits_wanted[logit_row];
  }
  // How many of logit_rows want all their logits.
  size_t whole_rows() const {
    if (logits_wanted.empty()) return logit_rows.size();
    return static_cast<size_t>(std::count(logits_wanted.begin(), logits_wanted.end(), kAllLogits));
  }
};

}  // namespace kvasir
