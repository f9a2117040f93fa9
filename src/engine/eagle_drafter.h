#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "decoding/drafter.h"
#include "engine/draft_forecast.h"
#include "engine/draft_work.h"
#include "engine/guess_chooser.h"
#include "engine/hidden_window.h"
#include "kvcache/block_pool.h"
#include "kvcache/block_table.h"
#include "kvcache/kv_store.h"
#include "kvcache/prefix_cache.h"
#include "models/eagle_layer.h"

namespace kvasir {

// An EAGLE head guesses (Li et al., arXiv 2401.15077 and 2503.01840): one layer over the tokens and the
// target's hidden states, which then goes on from what it gave itself.
//
// Its K and V are in blocks of its own. Hidden states exist only while the target computes a token, so the
// last kWindow of a sequence are kept; they are read when guesses are wanted, and tokens of which there are
// none (older ones, those that the target took from its prefix cache) are no part of the head's context. That
// it is shorter costs right guesses, never a wrong answer. Positions count from where the context begins:
// RoPE knows distances alone. A sequence for which the pool has no room gets no guesses.
class EagleDrafter final : public Drafter {
 public:
  struct Options {
    uint32_t slots = 0;
    uint32_t blocks = 0;              // of the pool
    uint32_t vocab = 0;               // of the target
    std::vector<TokenId> end_tokens;  // behind them there is nothing to guess
  };
  static constexpr uint32_t kWindow = 128;  // hidden states of a sequence that are kept
  // Rows that a step reads at most to catch up, of all sequences; what is beyond it begins anew from less.
  static constexpr uint32_t kCatchUpRows = 512;
  static constexpr uint32_t kRows = 64;  // of one pass

  // What the head costs, as PerfModel counts it.
  static WeightSizes sizes(const EagleWeights& weights);

  // Throws std::bad_alloc when the machine has not the memory for the pool.
  EagleDrafter(EagleWeights weights, const CausalLm& target, const KernelTable& kernels,
               const KvLayout& layout, ThreadPool& pool, const Options& options,
               DraftForecast forecast = DraftForecast());

  std::string_view name() const override { return "eagle"; }
  HiddenWish hidden_wish() const override;
  void see(uint32_t slot, const HiddenRows& rows) override;
  void open(uint32_t slot, uint32_t max_tokens) override;
  void close(uint32_t slot) override;
  void propose(std::span<DraftJob> jobs) override;
  double seconds(uint32_t sequences, uint32_t tokens) const override;
  double catch_up_seconds(uint32_t slot, uint32_t known, bool trial) const override;
  bool is_free() const override { return false; }

  const BlockPool& blocks() const { return pool_; }
  // Drafts that were not made because the pool had no room.
  uint64_t refusals() const { return refusals_.count(); }

 private:
  struct Slot {
    std::optional<BlockTable> table;
    HiddenWindow window;
    uint32_t max_tokens = 0;
    // Rows of positions [origin, computed) are in the blocks, the first one at place 0.
    uint32_t origin = 0, computed = 0;
  };
  // A job on its way through the passes.
  struct Work {
    DraftJob* job = nullptr;
    uint32_t next = 0;  // position of the next row that has features,
    uint32_t end = 0;   // and of the last one, plus one
  };

  void add_row(Work& work, uint32_t position, TokenId token);
  bool start(Work& work, uint32_t* catch_up_left);
  void read_features();
  void read_guesses();
  void run_pass(bool features);
  void begin_pass();

  EagleLayer layer_;
  KvLayout layout_;
  Options options_;
  BlockPool pool_;
  PrefixCache cache_;  // holds nothing: block tables want one
  KvStore store_;
  GuessChooser chooser_;
  DraftForecast forecast_;
  uint32_t mean_known_ = 0;  // of the sequences last asked for
  std::vector<Slot> slots_;
  std::vector<Work> work_;
  std::vector<BlockCopy> copies_;
  DraftRefusals refusals_{"the EAGLE head's"};
  // The pass that is being put together.
  std::vector<TokenId> tokens_;
  std::vector<int32_t> positions_;
  std::vector<ForwardBatch::Sequence> sequences_;
  std::vector<uint32_t> guess_rows_;
  std::vector<Work*> guessing_;  // who gets the guess of each
  AlignedBuffer features_;       // [kRows][feature_width]
  AlignedBuffer states_;         // [slots][width]: what the newest row of each slot gave
};

}  // namespace kvasir
