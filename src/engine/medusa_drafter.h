#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "decoding/drafter.h"
#include "engine/draft_forecast.h"
#include "engine/guess_chooser.h"
#include "engine/hidden_window.h"
#include "models/medusa_heads.h"

namespace kvasir {

// Medusa heads guess (Cai et al., arXiv 2401.10774): from what the target's output head read when it chose
// the last token, each head guesses one token further on, all in one pass and each without knowing the
// others'. As a chain, the likeliest guess of each head: rows of a verification are dear here, and a tree
// spends most of them on guesses of which one at most is right.
class MedusaDrafter final : public Drafter {
 public:
  struct Options {
    uint32_t slots = 0;
    uint32_t vocab = 0;               // of the target
    std::vector<TokenId> end_tokens;  // behind them there is nothing to guess
  };
  // What these heads cost, as PerfModel counts it: the shape of a target's that is nothing but them.
  static WeightSizes sizes(const MedusaWeights& weights);

  MedusaDrafter(MedusaWeights weights, const KernelTable& kernels, ThreadPool& pool, const Options& options,
                DraftForecast forecast = DraftForecast());

  std::string_view name() const override { return "medusa"; }
  HiddenWish hidden_wish() const override;
  void see(uint32_t slot, const HiddenRows& rows) override;
  void open(uint32_t slot, uint32_t max_tokens) override;
  void close(uint32_t slot) override;
  void propose(std::span<DraftJob> jobs) override;
  // All heads run at once; a guess's part of that.
  double seconds(uint32_t sequences, uint32_t tokens) const override;
  uint32_t most() const override { return heads_.count(); }
  bool is_free() const override { return false; }

 private:
  // Rows of sequences in one pass.
  static constexpr uint32_t kSequences = 64;

  const float* state_of(const DraftJob& job);
  void draft(std::span<DraftJob* const> jobs);

  MedusaHeads heads_;
  Options options_;
  GuessChooser chooser_;
  DraftForecast forecast_;
  std::vector<HiddenWindow> slots_;
  std::vector<DraftJob*> able_;
  std::vector<uint32_t> rows_of_head_;
};

}  // namespace kvasir
