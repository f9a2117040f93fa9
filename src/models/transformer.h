#pragma once

#include <memory>
#include <vector>

#include "models/attention_runner.h"
#include "models/causal_lm.h"
#include "models/feed_forward.h"
#include "models/last_rows.h"
#include "models/latent_attention.h"
#include "models/layer_ops.h"
#include "models/mixture_feed_forward.h"
#include "models/output_head.h"
#include "models/step_buffers.h"
#include "models/step_profile.h"
#include "models/weights.h"

namespace kvasir {

// The decoder of every architecture that we run: attention and a feed-forward part per layer, one behind the
// other or side by side, driven by ModelConfig and by which tensors exist. All threads run the whole pass
// together and meet at barriers; each phase splits rows, output panels or attention items (attention_plan.h),
// never a reduction, so thread count cannot touch a bit.
class Transformer final : public CausalLm {
 public:
  Transformer(ModelConfig config, ModelWeights weights, const KernelTable& kernels, ThreadPool& pool,
              const Limits& limits);

  const ModelConfig& config() const override { return config_; }
  size_t weight_bytes() const override { return weights_.memory.size(); }
  size_t scratch_bytes() const override {
    return buffers_.bytes() + (mixture_ ? mixture_->bytes() : 0) + attention_.bytes() + head_.bytes();
  }
  void forward(const ForwardBatch& batch, KvStore& kv, std::span<float> logits,
               std::span<BestLogits> best) override;
  void read_embedding(TokenId token, float* out) const override;
  void read_head_row(TokenId token, float* out) const override;
  void set_profile(StepProfile* profile) override { profile_ = profile; }

 private:
  struct Step {
    const ForwardBatch& batch;
    KvStore& kv;
    std::span<float> logits;
    std::span<BestLogits> best;
    uint32_t rows;
  };

  void run_worker(Worker& worker, const Step& step, const Step& rest);
  void embed_rows(Worker& worker, const Step& step);
  void rope_row(uint32_t row, int32_t position);
  void run_layer(Worker& worker, const Step& step, const Step& rest, uint32_t layer, PhaseClock& clock);
  void attend(Worker& worker, const Step& step, const Step& rest, uint32_t layer, const NormedRows& x,
              PhaseClock& clock);
  void attend_last(Worker& worker, const Step& step, uint32_t layer, const LayerHeads& heads,
                   const NormedRows& x);
  void norm_whole_rows(Worker& worker, const LayerWeights& weights, uint32_t rows);
  void output_head(Worker& worker, const Step& step);
  void hand_out(const Worker& worker, const Step& step, uint32_t point) const;

  ModelConfig config_;
  ModelWeights weights_;
  const KernelTable& kernels_;
  ThreadPool& pool_;
  Limits limits_;
  StepBuffers buffers_;
  LayerOps ops_;
  GatedFeedForward feed_forward_;
  std::unique_ptr<MixtureFeedForward> mixture_;  // where some layer has experts
  StepProfile* profile_ = nullptr;
  std::vector<double> frequencies_[2];  // of the global and the local base
  AttentionRunner attention_;
  LatentAttention latent_attention_;
  LastRows last_;
  OutputHead head_;
};

}  // namespace kvasir
