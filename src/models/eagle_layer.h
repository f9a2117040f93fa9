#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kernels/table.h"
#include "kvcache/kv_store.h"
#include "models/attention_runner.h"
#include "models/causal_lm.h"
#include "models/feed_forward.h"
#include "models/guess_head.h"
#include "models/layer_ops.h"
#include "models/own_matrix.h"

namespace kvasir {

// What an EAGLE head is made of. EAGLE-1 (arXiv 2401.15077): fc(embedding, feature) goes through one decoder
// layer without a first norm; what comes out is the next feature, which the target's output head reads as it
// is. EAGLE-3 (arXiv 2503.01840): fc(features of three layers) beside the embedding, each through a norm, are
// what attention reads; fc's result is the residual stream, what comes out takes its place for the next
// guess, and a norm stands before the output head. Variants of EAGLE-3 that vLLM and llama.cpp read: norms of
// the features before fc, of all together and of each layer's; the residual stream begins with the normed
// row; the next guess goes on from the normed result; biases, and norms of heads, of attention.
struct EagleWeights {
  bool fuses_layers = false;          // EAGLE-3
  bool norm_before_residual = false;  // the residual stream is the normed row; EAGLE-3 only
  bool norm_output = false;           // output_norm's result takes fc's place; EAGLE-3 only
  // The layer's shape: layers = 1, and everything that attention and the feed-forward part look at.
  ModelConfig config;
  std::vector<uint32_t> points;  // HiddenTap::points that make a row's features, side by side

  OwnMatrix fc;                                                 // (width, inputs)
  std::vector<float> fc_bias;                                   // or empty
  std::vector<float> embedding_norm, hidden_norm, output_norm;  // EAGLE-3: (width)
  std::vector<float> ffn_norm;                                  // (width)
  std::vector<float> features_norm, layer_norms;                // EAGLE-3, or empty: (feature_width)
  std::vector<float> q_bias, k_bias, v_bias, o_bias;            // or empty
  std::vector<float> q_norm, k_norm;                            // or empty: (head_dim)
  std::vector<float> rope_factors;                              // or empty: (rope_dim / 2)
  OwnMatrix embedding;  // where it is not the target's: (tokens, width)
  OwnMatrix q, k, v, o, gate, up, down;
  std::shared_ptr<GuessHead> output;

  uint32_t width() const { return config.hidden_dim; }
  uint32_t feature_width() const { return static_cast<uint32_t>(points.size()) * width(); }
  // What q, k and v read.
  uint32_t attention_inputs() const { return fuses_layers ? 2 * width() : width(); }
  size_t bytes() const;
};

// Rows of one pass of the layer. Each reads the token behind the one that its features are of.
struct EagleBatch {
  std::span<const TokenId> tokens;
  std::span<const int32_t> positions;
  std::span<const ForwardBatch::Sequence> sequences;
  std::span<const uint32_t> guess_rows;  // ascending: those whose guesses are wanted
  // [rows][feature_width], of the target; empty: each row goes on from what is in hidden().
  std::span<const float> features;
};

// Runs the layer over rows of several sequences at once, with K and V in a pool of its own. Everything is
// allocated at construction.
class EagleLayer {
 public:
  // The target, whose embeddings it reads, outlives it.
  EagleLayer(EagleWeights weights, const CausalLm& target, const KernelTable& kernels, ThreadPool& pool,
             uint32_t max_rows);

  const EagleWeights& weights() const { return weights_; }
  uint32_t max_rows() const { return limits_.max_rows; }

  // Computes the batch: writes K and V of every row, what comes out of the layer to hidden(), and the logits
  // of guess_rows.
  void run(const EagleBatch& batch, KvStore& kv);
  // [max_rows][width]: of the rows of the last run; what the next one goes on from.
  float* hidden() { return hidden_.as<float>().data(); }
  // Logits of guess_rows[i] of the last run, as weights().output reads them.
  const float* logits(uint32_t i) const { return logits_.as<float>().data() + i * weights_.output->stride(); }

 private:
  void run_worker(Worker& worker, const EagleBatch& batch);
  void embed(Worker& worker, const EagleBatch& batch);
  void enter(Worker& worker, const EagleBatch& batch);
  void enter_fused(Worker& worker, const EagleBatch& batch);
  void attend(Worker& worker, const EagleBatch& batch, const QuantRows& x, const float* xf);
  void leave(Worker& worker, const EagleBatch& batch);
  void fuse(Worker& worker, const float* inputs, uint32_t rows);
  const float* normed_features(Worker& worker, const EagleBatch& batch);
  NormWeights norm_of(const std::vector<float>& weights) const { return {.weight = weights.data()}; }

  EagleWeights weights_;
  const CausalLm& target_;
  const KernelTable& kernels_;
  ThreadPool& pool_;
  CausalLm::Limits limits_;
  LayerWeights layer_;
  StepBuffers buffers_;
  LayerOps ops_;
  GatedFeedForward feed_forward_;
  AttentionRunner attention_;
  std::vector<double> frequencies_;
  KvStore* kv_ = nullptr;  // of the run
  uint32_t pair_;          // values of a row of pairs_
  AlignedBuffer hidden_, pairs_, pairs_quantised_, logits_;
  AlignedBuffer features_;  // normed, where the head has norms of them
  QuantRows pairs_q_;
};

}  // namespace kvasir
