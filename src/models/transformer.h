#pragma once

#include <memory>
#include <vector>

#include "models/attention_runner.h"
#include "models/causal_lm.h"
#include "models/output_head.h"
#include "models/step_buffers.h"
#include "models/step_profile.h"
#include "models/weights.h"

namespace kvasir {

// The decoder of `llama`, `qwen2`, `gemma3` and their kin: pre-norm attention and gated MLP, driven by
// ModelConfig and by which tensors exist. All threads run the whole pass together and meet at barriers; each
// phase splits rows, output panels or attention items (attention_plan.h), never a reduction, so thread
// count cannot touch a bit.
class Transformer final : public CausalLm {
 public:
  Transformer(ModelConfig config, ModelWeights weights, const KernelTable& kernels, ThreadPool& pool,
              const Limits& limits);

  const ModelConfig& config() const override { return config_; }
  size_t weight_bytes() const override { return weights_.memory.size(); }
  void forward(const ForwardBatch& batch, KvStore& kv, std::span<float> logits,
               std::span<BestLogits> best) override;
  void set_profile(StepProfile* profile) override { profile_ = profile; }

 private:
  // One matrix of a phase: out[rows][ldo] (+)= x . w + bias.
  struct Product {
    const PackedMatrix* w;
    const float* bias;
    float* out;
    size_t ldo;
    LinearOutput mode = LinearOutput::kStore;
  };
  struct Step {
    const ForwardBatch& batch;
    KvStore& kv;
    std::span<float> logits;
    std::span<BestLogits> best;
    uint32_t rows;
  };

  void run_worker(Worker& worker, const Step& step);
  void embed_rows(Worker& worker, const Step& step);
  void rope_factors(uint32_t row, int32_t position);
  bool norms_alone(uint32_t rows) const;
  const NormedRows& norm_rows(Worker& worker, uint32_t rows, const float* weight);
  void products(Worker& worker, std::span<const Product> list, const QuantRows& x, const float* xf,
                uint32_t rows);
  void branch_output(Worker& worker, const Product& product, const QuantRows& x, const float* xf,
                     uint32_t rows, const float* post_norm);
  void mlp(Worker& worker, const LayerWeights& layer, const NormedRows& x, uint32_t rows);
  void gate_and_up(const LayerWeights& layer, const NormedRows& x, uint32_t rows, uint32_t panel_begin,
                   uint32_t panel_end, std::byte* scratch);
  void output_head(Worker& worker, const Step& step);

  ModelConfig config_;
  ModelWeights weights_;
  const KernelTable& kernels_;
  ThreadPool& pool_;
  Limits limits_;
  StepBuffers buffers_;
  StepProfile* profile_ = nullptr;
  std::vector<double> inv_freq_[2];  // global and local base
  AttentionRunner attention_;
  OutputHead head_;
};

}  // namespace kvasir
