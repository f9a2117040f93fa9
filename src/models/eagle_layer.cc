#include "models/eagle_layer.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "models/layer_heads.h"
#include "models/rope_frequencies.h"

namespace kvasir {
namespace {

const float* values_or_null(const std::vector<float>& values) {
  return values.empty() ? nullptr : values.data();
}

LayerWeights layer_of(const EagleWeights& w) {
  LayerWeights layer;
  layer.q = w.q.packed();
  layer.k = w.k.packed();
  layer.v = w.v.packed();
  layer.o = w.o.packed();
  layer.q_bias = values_or_null(w.q_bias);
  layer.k_bias = values_or_null(w.k_bias);
  layer.v_bias = values_or_null(w.v_bias);
  layer.o_bias = values_or_null(w.o_bias);
  layer.q_norm = values_or_null(w.q_norm);
  layer.k_norm = values_or_null(w.k_norm);
  layer.ffn_norm = {.weight = w.ffn_norm.data()};
  layer.ffn.gate = w.gate.packed();
  layer.ffn.up = w.up.packed();
  layer.ffn.down = w.down.packed();
  return layer;
}

}  // namespace

size_t EagleWeights::bytes() const {
  size_t sum = output->rows().panels() * output->rows().panel_bytes;
  for (const OwnMatrix* m : {&fc, &q, &k, &v, &o, &gate, &up, &down, &embedding}) sum += m->bytes();
  return sum;
}

EagleLayer::EagleLayer(EagleWeights weights, const CausalLm& target, const KernelTable& kernels,
                       ThreadPool& pool, uint32_t max_rows)
    : weights_(std::move(weights)),
      target_(target),
      kernels_(kernels),
      pool_(pool),
      limits_({.max_rows = max_rows, .max_logit_rows = max_rows}),
      layer_(layer_of(weights_)),
      buffers_(weights_.config, limits_, pool.size()),
      ops_(weights_.config, kernels, buffers_),
      feed_forward_(ops_),
      attention_(weights_.config, limits_, kernels, pool.size()),
      frequencies_(rope_frequencies(weights_.config.rope_dim, weights_.config.rope_base,
                                    weights_.config.rope_scaling, values_or_null(weights_.rope_factors))),
      pair_(2 * weights_.width()),
      hidden_(size_t{max_rows} * weights_.width() * sizeof(float)),
      pairs_(size_t{max_rows} * pair_ * sizeof(float)),
      pairs_quantised_(quant_rows_bytes(max_rows, pair_)),
      logits_(size_t{max_rows} * weights_.output->stride() * sizeof(float)),
      pairs_q_(carve_quant_rows(pairs_quantised_.data(), max_rows, pair_)) {
  if (!weights_.features_norm.empty() || !weights_.layer_norms.empty())
    features_ = AlignedBuffer(size_t{max_rows} * weights_.feature_width() * sizeof(float));
  CHECK(weights_.config.layers == 1 && target.config().hidden_dim == weights_.width());
}

void EagleLayer::run(const EagleBatch& batch, KvStore& kv) {
  CHECK(batch.tokens.size() <= limits_.max_rows);
  CHECK(batch.features.empty() || batch.features.size() >= batch.tokens.size() * weights_.feature_width());
  kv_ = &kv;
  attention_.plan(
      {.tokens = batch.tokens, .positions = batch.positions, .sequences = batch.sequences, .logit_rows = {}},
      kv);
  pool_.run([&](Worker& worker) { run_worker(worker, batch); });
}

void EagleLayer::run_worker(Worker& worker, const EagleBatch& batch) {
  const auto rows = static_cast<uint32_t>(batch.tokens.size());
  embed(worker, batch);
  if (weights_.fuses_layers) {
    enter_fused(worker, batch);
    attend(worker, batch, pairs_q_, pairs_.as<float>().data());
  } else {
    enter(worker, batch);
    const NormedRows& x = ops_.input_rows(worker, rows, {});
    attend(worker, batch, x.q, x.values);
  }
  PhaseClock clock(nullptr);
  const NormedRows& x = ops_.input_rows(worker, rows, layer_.ffn_norm);
  feed_forward_.run(worker, layer_.ffn, x, rows, {}, clock);
  leave(worker, batch);
}

// The embeddings of this worker's rows, in front of their pairs, and their positions' RoPE.
void EagleLayer::embed(Worker& worker, const EagleBatch& batch) {
  const ModelConfig& c = weights_.config;
  const auto [begin, end] = worker.share(batch.tokens.size());
  for (uint64_t r = begin; r < end; ++r) {
    float* embedding = pairs_.as<float>().data() + r * pair_;
    if (weights_.embedding.present())
      unpack_column(weights_.embedding.packed(), static_cast<uint32_t>(batch.tokens[r]), embedding);
    else
      target_.read_embedding(batch.tokens[r], embedding);
    rope_factors(batch.positions[r], frequencies_, c.rope_scaling.magnitude, buffers_.rope + r * c.rope_dim);
  }
}

// x = fc(inputs) of all rows. Ends at a barrier.
void EagleLayer::fuse(Worker& worker, const float* inputs, uint32_t rows) {
  const LayerOps::Product product = {.w = &weights_.fc.packed(),
                                     .bias = values_or_null(weights_.fc_bias),
                                     .out = buffers_.x,
                                     .ldo = weights_.width()};
  ops_.products(worker, {&product, 1}, pairs_q_, inputs, rows);  // F16 reads the floats
  worker.barrier();
}

// EAGLE-1: x = fc(embedding, feature), whether the feature is the target's or our own. Ends at a barrier.
void EagleLayer::enter(Worker& worker, const EagleBatch& batch) {
  const uint32_t d = weights_.width();
  const float* features = batch.features.empty() ? hidden() : batch.features.data();
  const auto [begin, end] = worker.share(batch.tokens.size());
  for (uint64_t r = begin; r < end; ++r)
    std::copy_n(features + r * d, d, pairs_.as<float>().data() + r * pair_ + d);
  worker.barrier();
  fuse(worker, pairs_.as<float>().data(), static_cast<uint32_t>(batch.tokens.size()));
}

// The features as fc reads them. Ends at a barrier where they are computed.
const float* EagleLayer::normed_features(Worker& worker, const EagleBatch& batch) {
  if (features_.size() == 0) return batch.features.data();
  const uint32_t d = weights_.width(), all = weights_.feature_width();
  const auto [begin, end] = worker.share(batch.tokens.size());
  for (uint64_t r = begin; r < end; ++r) {
    float* row = features_.as<float>().data() + r * all;
    std::copy_n(batch.features.data() + r * all, all, row);
    if (!weights_.features_norm.empty()) ops_.norm(norm_of(weights_.features_norm), row, all, row);
    for (uint32_t i = 0; i < weights_.layer_norms.size(); i += d)
      ops_.norm({.weight = weights_.layer_norms.data() + i}, row + i, d, row + i);
  }
  worker.barrier();
  return features_.as<float>().data();
}

// EAGLE-3: x = fc(features), or what the row before gave; attention reads norm(embedding), norm(x). Ends at a
// barrier.
void EagleLayer::enter_fused(Worker& worker, const EagleBatch& batch) {
  const uint32_t d = weights_.width();
  const auto rows = static_cast<uint32_t>(batch.tokens.size());
  const auto [begin, end] = worker.share(rows);
  if (batch.features.empty())
    std::copy_n(hidden() + begin * d, (end - begin) * d, buffers_.x + begin * d);
  else
    fuse(worker, normed_features(worker, batch), rows);
  for (uint64_t r = begin; r < end; ++r) {
    float* pair = pairs_.as<float>().data() + r * pair_;
    ops_.norm(norm_of(weights_.embedding_norm), pair, d, pair);
    ops_.norm(norm_of(weights_.hidden_norm), buffers_.x + r * d, d, pair + d);
    if (weights_.norm_before_residual) std::copy_n(pair + d, d, buffers_.x + r * d);
    kernels_.quantize_rows(pair, pair_, 1, pair_, pairs_q_, static_cast<uint32_t>(r));
  }
  worker.barrier();
}

void EagleLayer::attend(Worker& worker, const EagleBatch& batch, const QuantRows& x, const float* xf) {
  const ModelConfig& c = weights_.config;
  const auto rows = static_cast<uint32_t>(batch.tokens.size());
  const LayerOps::Product qkv[] = {{&layer_.q, layer_.q_bias, buffers_.q, c.q_dim()},
                                   {&layer_.k, layer_.k_bias, buffers_.k, c.kv_dim()},
                                   {&layer_.v, layer_.v_bias, buffers_.v, c.kv_dim()}};
  ops_.products(worker, qkv, x, xf, rows);
  worker.barrier();
  const ForwardBatch as_forward = {
      .tokens = batch.tokens, .positions = batch.positions, .sequences = batch.sequences, .logit_rows = {}};
  const LayerHeads heads(ops_, layer_, limits_.max_rows, as_forward, *kv_, 0);
  attention_.run(worker, as_forward, *kv_, 0, buffers_, &heads, nullptr);
  ops_.add_branch(worker, layer_.o, layer_.o_bias, buffers_.attn_q, buffers_.attn, rows, {});
}

// What came out, and the guesses' logits.
void EagleLayer::leave(Worker& worker, const EagleBatch& batch) {
  const uint32_t d = weights_.width();
  const auto [begin, end] = worker.share(batch.tokens.size());
  if (weights_.norm_output) {
    for (uint64_t r = begin; r < end; ++r)
      ops_.norm(norm_of(weights_.output_norm), buffers_.x + r * d, d, hidden() + r * d);
  } else {
    std::copy_n(buffers_.x + begin * d, (end - begin) * d, hidden() + begin * d);
  }
  const auto guesses = static_cast<uint32_t>(batch.guess_rows.size());
  if (guesses == 0) return;
  const auto [first, last] = worker.share(guesses);
  for (uint64_t i = first; i < last; ++i) {
    const float* x = buffers_.x + size_t{batch.guess_rows[i]} * d;
    float* y = buffers_.normed.values + i * d;
    if (weights_.output_norm.empty())
      std::copy_n(x, d, y);
    else
      ops_.norm(norm_of(weights_.output_norm), x, d, y);
    kernels_.quantize_rows(y, d, 1, d, buffers_.normed.q, static_cast<uint32_t>(i));
  }
  worker.barrier();
  weights_.output->run(worker, kernels_, buffers_.normed.q, guesses, logits_.as<float>().data(),
                       weights_.output->stride(), buffers_.scratch(worker.index()));
}

}  // namespace kvasir
