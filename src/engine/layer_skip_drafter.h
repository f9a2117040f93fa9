#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "decoding/drafter.h"
#include "engine/draft_batch.h"
#include "engine/draft_forecast.h"

namespace kvasir {

// The target guesses with some of its own layers and its output head (self-speculation: Zhang et al.,
// "Draft & Verify", arXiv 2309.08168; Elhoushi et al., "LayerSkip", arXiv 2404.16710). It needs no memory and
// nothing to catch up with: it reads the target's own K and V, and writes those of its layers where the
// target's will be written when the guesses are verified, over every one of them: a row of the verification
// writes its position in all layers before any row reads it.
class LayerSkipDrafter final : public Drafter {
 public:
  // `batch.layers` run. The model is the target, and outlives the drafter.
  LayerSkipDrafter(CausalLm& model, ThreadPool& pool, const DraftBatch::Options& batch,
                   std::vector<TokenId> end_tokens, DraftForecast forecast = DraftForecast());

  std::string_view name() const override { return "layers"; }
  void attach(KvStore& kv) override { kv_ = &kv; }
  void open(uint32_t, uint32_t) override {}
  void close(uint32_t) override {}
  void propose(std::span<DraftJob> jobs) override;
  double seconds(uint32_t sequences, uint32_t tokens) const override;
  bool is_free() const override { return false; }

 private:
  void run_batch();

  DraftBatch batch_;
  std::vector<TokenId> end_tokens_;
  DraftForecast forecast_;
  KvStore* kv_ = nullptr;
  uint32_t mean_known_ = 0;  // of the sequences last asked for
};

// The layers that a text names, of a model with `layers` of them: "12" for the first twelve, or ranges and
// single ones joined by "+", from 0 ("0-7+20-29"). kInvalidArgument says what is wrong.
Result<std::vector<uint32_t>> parse_layers(std::string_view text, uint32_t layers);

}  // namespace kvasir
