#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/thread_pool.h"
#include "kernels/best_logits.h"
#include "kernels/table.h"
#include "models/causal_lm.h"
#include "models/own_matrix.h"

namespace kvasir {

// An output head over some of a target's tokens, for guesses: most of what a head costs is rows of tokens
// that hardly ever come (FR-Spec, arXiv 2502.14856).
class GuessHead {
 public:
  // Row i of `rows` belongs to token ids[i]; ids ascend. Logits are scaled and capped as the target's are.
  GuessHead(std::vector<TokenId> ids, OwnMatrix rows, const ModelConfig& target);

  std::span<const TokenId> ids() const { return ids_; }
  const PackedMatrix& rows() const { return rows_.packed(); }

  // This worker's share of the logits of `count` states, quantised: out[count][ldo], where ldo is at
  // least stride(). No barrier.
  void run(Worker& worker, const KernelTable& kernels, const QuantRows& x, uint32_t count, float* out,
           size_t ldo, std::byte* scratch) const;
  size_t stride() const { return size_t{rows_.packed().panels()} * kPanelCols; }

  // The best of a row of these logits, under the target's token ids; best.start() has been called.
  void take_best(const float* logits, const KernelTable& kernels, BestLogits& best) const;
  // All of them, in a row of the target's vocabulary; -infinity for tokens that are not guessed.
  void spread(const float* logits, std::span<float> row) const;

 private:
  std::vector<TokenId> ids_;
  OwnMatrix rows_;
  float scale_, softcap_;
};

// The rows of a target's own output head that belong to these tokens.
OwnMatrix rows_of_head(const CausalLm& target, std::span<const TokenId> ids);

}  // namespace kvasir
