#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "decoding/drafter.h"
#include "decoding/sampler_scratch.h"
#include "engine/draft_forecast.h"
#include "kvcache/kv_store.h"
#include "models/causal_lm.h"

namespace kvasir {

// One pass of a model, or of some of its layers, that is to give guesses: rows of several sequences, and
// behind the last row of those that ask for it the token that the sequence's own sampler chooses there. A
// guess after other guesses of its draft is chosen as if these were not in the history that penalties look
// at. Everything is allocated at construction.
class DraftBatch {
 public:
  struct Options {
    CausalLm::Limits limits;       // those the model was loaded with, or less
    uint32_t vocab = 0;            // of the target: no token from there on is chosen
    uint32_t head_tokens = 0;      // only tokens below it are chosen; 0: any
    std::vector<uint32_t> layers;  // that run; empty: all
  };
  // Model and pool outlive it.
  DraftBatch(CausalLm& model, ThreadPool& pool, const Options& options);

  void clear();
  bool empty() const { return tokens_.empty(); }
  uint32_t room() const { return options_.limits.max_rows - static_cast<uint32_t>(tokens_.size()); }
  uint32_t choices_left() const {
    return options_.limits.max_logit_rows - static_cast<uint32_t>(choices_.size());
  }

  // Rows of a sequence, at positions from `first` on; its tables have a place for each.
  void add(std::span<const BlockId* const> tables, uint32_t first, std::span<const TokenId> tokens);
  // After its last row the sequence added last goes on with one more guess for this job.
  void choose_for(DraftJob& job);

  // A job's guess; kNoToken where the logits allow none.
  struct Choice {
    DraftJob* job = nullptr;
    TokenId token = kNoToken;
    std::optional<uint8_t> grade = std::nullopt;  // where the best few logits were computed
  };
  // Computes the rows and chooses; the result is valid until clear().
  std::span<const Choice> run(KvStore& kv);
  // The same, for `forecast` to learn from, whose pass has sequences of `context` tokens on average; adds the
  // guesses to the jobs' drafts and starts afresh. Nothing where there are no rows.
  void give_guesses(KvStore& kv, DraftForecast& forecast, uint32_t context);

  uint32_t rows() const { return static_cast<uint32_t>(tokens_.size()); }
  uint32_t choices() const { return static_cast<uint32_t>(choices_.size()); }

 private:
  std::span<float> whole_row(uint32_t slot);
  void choose(uint32_t index, SamplerScratch& scratch, AlignedBuffer& padded);

  CausalLm& model_;
  ThreadPool& pool_;
  Options options_;
  uint32_t model_vocab_;
  uint32_t head_;  // tokens whose logits are computed
  AlignedBuffer logits_;
  uint32_t rows_padded_ = 0;  // of logits_, whose logits from head_ on are -infinity
  std::vector<BestLogits> best_;
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<ForwardBatch::Sequence> sequences_;
  std::vector<uint32_t> logit_rows_, wanted_, slots_;
  std::vector<Choice> choices_;
  std::vector<SamplerScratch> scratch_;  // one per thread
  std::vector<AlignedBuffer> padded_;    // one per thread, where the target knows more tokens
};

}  // namespace kvasir
