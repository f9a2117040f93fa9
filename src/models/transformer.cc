#include "models/transformer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "base/check.h"
#include "kernels/quant_codec.h"

namespace kvasir {
namespace {

// The divisors that count: which set is settled when a model is opened, by the longest context that it will
// serve, for K that was rotated by one set cannot be read by the other.
const float* rope_factors_for(const ModelWeights& weights, const ModelConfig& config, uint32_t longest) {
  if (weights.rope_factors != nullptr) return weights.rope_factors;
  return longest > config.rope_scaling.original_context ? weights.rope_factors_long
                                                        : weights.rope_factors_short;
}

}  // namespace

Transformer::Transformer(ModelConfig config, ModelWeights weights, const KernelTable& kernels,
                         ThreadPool& pool, const Limits& limits)
    : config_(std::move(config)),
      weights_(std::move(weights)),
      kernels_(kernels),
      pool_(pool),
      limits_(limits),
      buffers_(config_, limits, pool.size()),
      ops_(config_, kernels, buffers_),
      feed_forward_(ops_),
      attention_(config_, limits, kernels, pool.size()),
      latent_attention_(ops_, attention_, limits.max_rows),
      last_(limits),
      head_(config_, limits, kernels, pool.size()) {
  if (config_.layers_with_experts() > 0)
    mixture_ = std::make_unique<MixtureFeedForward>(ops_, weights_.layers, limits.max_rows, pool.size());
  const uint32_t longest = limits.max_context != 0 ? limits.max_context : config_.context_length;
  frequencies_[0] = rope_frequencies(config_.rope_dim, config_.rope_base, config_.rope_scaling,
                                     rope_factors_for(weights_, config_, longest));
  frequencies_[1] = rope_frequencies(config_.rope_dim, config_.rope_base_local, {}, nullptr);
}

void Transformer::forward(const ForwardBatch& batch, KvStore& kv, std::span<float> logits,
                          std::span<BestLogits> best) {
  const Step step{batch, kv, logits, best, static_cast<uint32_t>(batch.tokens.size())};
  CHECK(step.rows <= limits_.max_rows && batch.logit_rows.size() <= limits_.max_logit_rows);
  CHECK(logits.size() >= batch.whole_rows() * config_.vocab_size);
  CHECK(batch.logits_wanted.empty() || best.size() >= batch.logit_rows.size());
  CHECK(batch.hidden.rows.empty() || batch.hidden.rows.back() < step.rows);
  CHECK(batch.layers.empty() || batch.layers.back() < config_.layers);
  last_.plan(batch);
  const bool fewer = last_.fewer();
  attention_.plan(batch, kv, fewer ? &last_.attended() : nullptr);
  const Step rest{fewer ? last_.together() : batch, kv, logits, best,
                  fewer ? static_cast<uint32_t>(last_.rows().size()) : step.rows};
  // Two pointers in what is called: more of them would be put on the heap.
  const std::pair<const Step&, const Step&> both(step, rest);
  pool_.run([this, &both](Worker& worker) { run_worker(worker, both.first, both.second); });
}

// `rest`: the rows that go on behind the last layer's K and V.
void Transformer::run_worker(Worker& worker, const Step& step, const Step& rest) {
  PhaseClock clock(worker.index() == 0 ? profile_ : nullptr);
  embed_rows(worker, step);
  if (ops_.rows_alone(step.rows))
    worker.barrier();  // else the first norm reads the rows that this worker wrote
  clock.mark(StepPhase::kEmbed);
  const std::span<const uint32_t> some = step.batch.layers;
  const auto layers = some.empty() ? config_.layers : static_cast<uint32_t>(some.size());
  for (uint32_t i = 0; i < layers; ++i) {
    const uint32_t layer = some.empty() ? i : some[i];
    hand_out(worker, step, layer);
    run_layer(worker, step, i + 1 < layers ? step : rest, layer, clock);
  }
  hand_out(worker, rest, config_.layers);
  hand_out(worker, rest, HiddenTap::kOutputNorm);
  if (!rest.batch.logit_rows.empty()) output_head(worker, rest);
  clock.mark(StepPhase::kHead);
}

// From the rows of `step` to those of `rest`, which are the same ones or those of last_, moved together.
void Transformer::run_layer(Worker& worker, const Step& step, const Step& rest, uint32_t layer,
                            PhaseClock& clock) {
  const LayerWeights& w = weights_.layers[layer];
  const NormedRows* x = &ops_.input_rows(worker, step.rows, w.attn_norm);
  clock.mark(StepPhase::kNorm);
  attend(worker, step, rest, layer, *x, clock);
  if (rest.rows == 0) return;
  const bool parallel = w.attn_norm.present() && !w.ffn_norm.present();
  if (!parallel) x = &ops_.input_rows(worker, rest.rows, w.ffn_norm);
  clock.mark(StepPhase::kNorm);
  if (w.mixture.present())
    mixture_->run(worker, w.mixture, *x, rest.rows, w.post_ffn_norm, clock);
  else
    feed_forward_.run(worker, w.ffn, *x, rest.rows, w.post_ffn_norm, clock);
}

// Attention over the rows x, added to the residual stream. Ends at a barrier.
void Transformer::attend(Worker& worker, const Step& step, const Step& rest, uint32_t layer,
                         const NormedRows& x, PhaseClock& clock) {
  const LayerWeights& w = weights_.layers[layer];
  const bool fewer = rest.rows < step.rows;
  if (config_.mla)
    return latent_attention_.run(worker, step.batch, step.kv, w, layer, x, fewer ? &last_ : nullptr, clock);
  StepBuffers& b = buffers_;
  const LayerOps::Product qkv[] = {{&w.q, w.q_bias, b.q, config_.q_dim()},
                                   {&w.k, w.k_bias, b.k, config_.kv_dim()},
                                   {&w.v, w.v_bias, b.v, config_.kv_dim()}};
  ops_.products(worker, qkv, x.q, x.values, step.rows);
  worker.barrier();
  clock.mark(StepPhase::kQkv);
  if (config_.head_norm == HeadNorm::kWholeRow) norm_whole_rows(worker, w, step.rows);
  const LayerHeads heads(ops_, w, limits_.max_rows, step.batch, step.kv, layer);
  if (fewer)
    attend_last(worker, step, layer, heads, x);
  else
    attention_.run(worker, step.batch, step.kv, layer, b, &heads, w.sinks);
  clock.mark(StepPhase::kAttention);
  if (rest.rows == 0) return;
  ops_.add_branch(worker, w.o, w.o_bias, b.attn_q, b.attn, rest.rows, w.post_attn_norm);
  clock.mark(StepPhase::kAttnOut);
}

// K and V of all rows, and attention of those that go on. Ends at a barrier, with all that these rows have
// and are read for moved together.
void Transformer::attend_last(Worker& worker, const Step& step, uint32_t layer, const LayerHeads& heads,
                              const NormedRows& x) {
  attention_.ready_all(worker, step.batch, heads);
  const std::span<const uint32_t> rows = last_.rows();
  if (rows.empty()) return;
  attention_.run_last(worker, last_.attended(), step.kv, layer, buffers_, weights_.layers[layer].sinks);
  ops_.move_together(worker, rows, buffers_.attn, config_.attn_dim(), &buffers_.attn_q);
  ops_.move_together(worker, rows, buffers_.x, config_.hidden_dim, nullptr);
  ops_.move_together(worker, rows, x.values, config_.hidden_dim, &x.q);
  worker.barrier();
}

// Norms of q and k that span all heads of a row. Ends at a barrier.
void Transformer::norm_whole_rows(Worker& worker, const LayerWeights& weights, uint32_t rows) {
  const auto [begin, end] = worker.share(rows);
  for (uint64_t r = begin; r < end; ++r) {
    float* q = buffers_.q + r * config_.q_dim();
    float* k = buffers_.k + r * config_.kv_dim();
    ops_.norm({.weight = weights.q_norm}, q, config_.q_dim(), q);
    ops_.norm({.weight = weights.k_norm}, k, config_.kv_dim(), k);
  }
  worker.barrier();
}

void Transformer::embed_rows(Worker& worker, const Step& step) {
  const uint32_t d = config_.hidden_dim;
  const auto [begin, end] = worker.share(step.rows);
  for (uint64_t r = begin; r < end; ++r) {
    float* x = buffers_.x + r * d;
    read_embedding(step.batch.tokens[r], x);
    rope_row(static_cast<uint32_t>(r), step.batch.positions[r]);
  }
}

void Transformer::read_embedding(TokenId id, float* out) const {
  const auto token = static_cast<uint32_t>(id);
  DCHECK(token < config_.vocab_size);
  if (weights_.tied)
    unpack_column(weights_.head, token, out);
  else
    dequantize(weights_.embedding.type, weights_.embedding.data + token * weights_.embedding.row_bytes(),
               config_.hidden_dim, out);
  if (config_.embedding_scale != 1.0f) kernels_.scale(config_.embedding_scale, config_.hidden_dim, out);
}

void Transformer::read_head_row(TokenId token, float* out) const {
  unpack_column(weights_.head, static_cast<uint32_t>(token), out);
}

// cos and sin of a row's position, for each base.
void Transformer::rope_row(uint32_t row, int32_t position) {
  for (uint32_t base = 0; base < (config_.has_local_rope() ? 2u : 1u); ++base) {
    float* out = buffers_.rope + (static_cast<size_t>(base) * limits_.max_rows + row) * config_.rope_dim;
    rope_factors(position, frequencies_[base], base == 0 ? config_.rope_scaling.magnitude : 1.0, out);
  }
}

// Between layers a worker's own share of the rows is whole, and nobody writes to it before the next barrier.
void Transformer::hand_out(const Worker& worker, const Step& step, uint32_t point) const {
  const HiddenTap& tap = step.batch.hidden;
  if (tap.rows.empty()) return;
  const auto at = std::find(tap.points.begin(), tap.points.end(), point);
  if (at == tap.points.end()) return;
  const uint32_t d = config_.hidden_dim;
  const auto [begin, end] = worker.share(step.rows);
  for (size_t i = 0; i < tap.rows.size(); ++i) {
    if (tap.rows[i] < begin || tap.rows[i] >= end) continue;
    const float* x = buffers_.x + tap.rows[i] * static_cast<size_t>(d);
    float* out = tap.out + (i * tap.points.size() + static_cast<size_t>(at - tap.points.begin())) * d;
    if (point == HiddenTap::kOutputNorm)
      ops_.norm(weights_.output_norm, x, d, out);
    else
      std::copy_n(x, d, out);
  }
}

void Transformer::output_head(Worker& worker, const Step& step) {
  const uint32_t d = config_.hidden_dim;
  const auto count = static_cast<uint32_t>(step.batch.logit_rows.size());
  worker.barrier();  // rows of x move between workers here
  const auto [begin, end] = worker.share(count);
  for (uint64_t i = begin; i < end; ++i) {
    float* y = buffers_.normed.values + i * d;
    ops_.norm(weights_.output_norm, buffers_.x + step.batch.logit_rows[i] * static_cast<size_t>(d), d, y);
    kernels_.quantize_rows(y, d, 1, d, buffers_.normed.q, static_cast<uint32_t>(i));
  }
  worker.barrier();
  head_.run(worker, {.batch = step.batch,
                     .weights = weights_.head,
                     .x = buffers_.normed.q,
                     .xf = buffers_.normed.values,
                     .logits = step.logits,
                     .best = step.best,
                     .scratch = buffers_.scratch(worker.index())});
}

}  // namespace kvasir
