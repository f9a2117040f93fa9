#include "models/transformer.h"

#include <algorithm>
#include <cmath>

#include "kernels/quant_codec.h"

namespace kvasir {
namespace {

// With many rows, gate and up go this many panels at a time: 128 columns of 512 rows fill half of a 1 MiB
// cache. With few, one stretch reads each matrix as one stream.
constexpr uint32_t kStretchRows = 24;
constexpr uint64_t kStretchPanels = 8;

std::vector<double> inverse_frequencies(uint32_t rope_dim, double base, double linear_factor,
                                        const float* factors) {
  std::vector<double> out(rope_dim / 2);
  for (uint32_t i = 0; i < out.size(); ++i)
    out[i] = std::pow(base, -2.0 * i / rope_dim) / linear_factor / (factors != nullptr ? factors[i] : 1.0f);
  return out;
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
      attention_(config_, limits, kernels, pool.size()),
      head_(config_, limits, kernels, pool.size()) {
  inv_freq_[0] = inverse_frequencies(config_.rope_dim, config_.rope_base, config_.rope_linear_factor,
                                     weights_.rope_factors);
  inv_freq_[1] = inverse_frequencies(config_.rope_dim, config_.rope_base_local, 1.0, nullptr);
}

void Transformer::forward(const ForwardBatch& batch, KvStore& kv, std::span<float> logits,
                          std::span<BestLogits> best) {
  const Step step{batch, kv, logits, best, static_cast<uint32_t>(batch.tokens.size())};
  CHECK(step.rows <= limits_.max_rows && batch.logit_rows.size() <= limits_.max_logit_rows);
  CHECK(logits.size() >= batch.whole_rows() * config_.vocab_size);
  CHECK(batch.logits_wanted.empty() || best.size() >= batch.logit_rows.size());
  CHECK(batch.layers.empty() || batch.layers.back() < config_.layers);
  attention_.plan(batch, kv);
  pool_.run([&](Worker& worker) { run_worker(worker, step); });
}

void Transformer::run_worker(Worker& worker, const Step& step) {
  StepBuffers& b = buffers_;
  PhaseClock clock(worker.index() == 0 ? profile_ : nullptr);
  embed_rows(worker, step);
  if (norms_alone(step.rows)) worker.barrier();  // else the first norm reads the rows that this worker wrote
  clock.mark(StepPhase::kEmbed);
  const std::span<const uint32_t> some = step.batch.layers;
  const auto layers = some.empty() ? config_.layers : static_cast<uint32_t>(some.size());
  for (uint32_t i = 0; i < layers; ++i) {
    const uint32_t l = some.empty() ? i : some[i];
    const LayerWeights& w = weights_.layers[l];
    const NormedRows& normed = norm_rows(worker, step.rows, w.attn_norm);
    clock.mark(StepPhase::kNorm);
    const Product qkv[] = {{&w.q, w.q_bias, b.q, config_.q_dim()},
                           {&w.k, w.k_bias, b.k, config_.kv_dim()},
                           {&w.v, w.v_bias, b.v, config_.kv_dim()}};
    products(worker, qkv, normed.q, normed.values, step.rows);
    worker.barrier();
    clock.mark(StepPhase::kQkv);
    const LayerHeads heads(config_, kernels_, w, b, limits_.max_rows, step.batch, step.kv, l);
    attention_.run(worker, step.batch, step.kv, l, b, heads);
    clock.mark(StepPhase::kAttention);
    branch_output(worker, {&w.o, w.o_bias, nullptr, config_.hidden_dim}, b.attn_q, b.attn, step.rows,
                  w.post_attn_norm);
    clock.mark(StepPhase::kAttnOut);
    const NormedRows& ffn_input = norm_rows(worker, step.rows, w.ffn_norm);
    clock.mark(StepPhase::kNorm);
    mlp(worker, w, ffn_input, step.rows);
    clock.mark(StepPhase::kGateUp);
    branch_output(worker, {&w.down, nullptr, nullptr, config_.hidden_dim}, b.ffn_q, b.gate, step.rows,
                  w.post_ffn_norm);
    clock.mark(StepPhase::kDown);
  }
  if (!step.batch.logit_rows.empty()) output_head(worker, step);
  clock.mark(StepPhase::kHead);
}

void Transformer::embed_rows(Worker& worker, const Step& step) {
  const uint32_t d = config_.hidden_dim;
  const auto [begin, end] = worker.share(step.rows);
  for (uint64_t r = begin; r < end; ++r) {
    float* x = buffers_.x + r * d;
    const auto token = static_cast<uint32_t>(step.batch.tokens[r]);
    DCHECK(token < config_.vocab_size);
    if (weights_.tied)
      unpack_column(weights_.head, token, x);
    else
      dequantize(weights_.embedding.type, weights_.embedding.data + token * weights_.embedding.row_bytes(), d,
                 x);
    if (config_.embedding_scale != 1.0f) kernels_.scale(config_.embedding_scale, d, x);
    rope_factors(static_cast<uint32_t>(r), step.batch.positions[r]);
  }
}

// cos and sin of a row's position, computed in double from the absolute position alone and rounded once.
void Transformer::rope_factors(uint32_t row, int32_t position) {
  const uint32_t half = config_.rope_dim / 2;
  for (uint32_t base = 0; base < (config_.local_rope ? 2u : 1u); ++base) {
    float* out = buffers_.rope + (static_cast<size_t>(base) * limits_.max_rows + row) * config_.rope_dim;
    for (uint32_t i = 0; i < half; ++i) {
      const double angle = position * inv_freq_[base][i];
      out[i] = static_cast<float>(std::cos(angle));
      out[half + i] = static_cast<float>(std::sin(angle));
    }
  }
}

// Whether each thread norms all rows for itself. Not behind a post-norm, which adds to the rows of x without
// a barrier.
bool Transformer::norms_alone(uint32_t rows) const {
  return rows <= StepBuffers::kOwnRows && weights_.layers.front().post_attn_norm == nullptr;
}

// Norms rows of the residual stream and quantises them: where all threads can do so for themselves, all rows;
// else this worker's share, up to a barrier.
const NormedRows& Transformer::norm_rows(Worker& worker, uint32_t rows, const float* weight) {
  const bool alone = norms_alone(rows);
  const NormedRows& out = alone ? buffers_.own_normed(worker.index()) : buffers_.normed;
  const uint32_t d = config_.hidden_dim;
  const auto [begin, end] = alone ? std::pair<uint64_t, uint64_t>{0, rows} : worker.share(rows);
  for (uint64_t r = begin; r < end; ++r) {
    float* y = out.values + r * d;
    kernels_.rms_norm(buffers_.x + r * d, weight, d, config_.norm_eps, y);
    kernels_.quantize_rows(y, d, 1, d, out.q, static_cast<uint32_t>(r));
  }
  if (!alone) worker.barrier();
  return out;
}

// Splits the panels of all matrices of a phase over the workers as if they were one matrix. No barrier.
void Transformer::products(Worker& worker, std::span<const Product> list, const QuantRows& x, const float* xf,
                           uint32_t rows) {
  uint64_t total = 0;
  for (const Product& p : list) total += p.w->panels();
  const auto [begin, end] = worker.share(total, 2);
  uint64_t first = 0;
  for (const Product& p : list) {
    const uint64_t panels = p.w->panels();
    const uint64_t lo = std::clamp(begin, first, first + panels) - first;
    const uint64_t hi = std::clamp(end, first, first + panels) - first;
    if (lo < hi)
      kernels_.linear({.w = p.w,
                       .x = &x,
                       .xf = xf,
                       .rows = rows,
                       .panel_begin = static_cast<uint32_t>(lo),
                       .panel_end = static_cast<uint32_t>(hi),
                       .out = p.out,
                       .ldo = p.ldo,
                       .bias = p.bias,
                       .mode = p.mode,
                       .scratch = buffers_.scratch(worker.index())});
    first += panels;
  }
}

// Adds a branch to the residual stream, through its own norm where the model has one. Ends at a barrier.
void Transformer::branch_output(Worker& worker, const Product& product, const QuantRows& x, const float* xf,
                                uint32_t rows, const float* post_norm) {
  Product p = product;
  p.out = post_norm != nullptr ? buffers_.normed.values : buffers_.x;
  p.mode = post_norm != nullptr ? LinearOutput::kStore : LinearOutput::kAdd;
  products(worker, {&p, 1}, x, xf, rows);
  worker.barrier();
  if (post_norm == nullptr) return;
  const uint32_t d = config_.hidden_dim;
  const auto [begin, end] = worker.share(rows);
  for (uint64_t r = begin; r < end; ++r) {
    float* y = buffers_.normed.values + r * d;
    kernels_.rms_norm(y, post_norm, d, config_.norm_eps, y);
    kernels_.add(y, d, buffers_.x + r * d);
  }
  // The next norm of these rows runs on the same worker.
}

// act(gate) * up, quantised; a worker activates the very columns it computed, a stretch at a time while they
// are still in its cache. Ends at a barrier.
void Transformer::mlp(Worker& worker, const LayerWeights& layer, const NormedRows& x, uint32_t rows) {
  const auto [begin, end] = worker.share(layer.gate.panels(), 2);
  const uint64_t stretch = rows >= kStretchRows ? kStretchPanels : end - begin;
  for (uint64_t panel = begin; panel < end; panel += stretch)
    gate_and_up(layer, x, rows, static_cast<uint32_t>(panel),
                static_cast<uint32_t>(std::min(end, panel + stretch)), buffers_.scratch(worker.index()));
  worker.barrier();
}

void Transformer::gate_and_up(const LayerWeights& layer, const NormedRows& x, uint32_t rows,
                              uint32_t panel_begin, uint32_t panel_end, std::byte* scratch) {
  const uint32_t f = config_.ffn_dim;
  for (const auto& [w, out] : {std::pair{&layer.gate, buffers_.gate}, {&layer.up, buffers_.up}})
    kernels_.linear({.w = w,
                     .x = &x.q,
                     .xf = x.values,
                     .rows = rows,
                     .panel_begin = panel_begin,
                     .panel_end = panel_end,
                     .out = out,
                     .ldo = f,
                     .bias = nullptr,
                     .mode = LinearOutput::kStore,
                     .scratch = scratch});
  const uint32_t first = panel_begin * kPanelCols;
  const uint32_t count = std::min(f, panel_end * kPanelCols) - first;
  for (uint32_t r = 0; r < rows; ++r) {
    float* gate = buffers_.gate + r * static_cast<size_t>(f) + first;
    kernels_.gated_act(config_.activation, gate, buffers_.up + r * static_cast<size_t>(f) + first, count,
                       gate);
  }
  kernels_.quantize_rows(buffers_.gate + first, f, rows, count,
                         advance_groups(buffers_.ffn_q, first / kGroup), 0);
}

void Transformer::output_head(Worker& worker, const Step& step) {
  const uint32_t d = config_.hidden_dim;
  const auto count = static_cast<uint32_t>(step.batch.logit_rows.size());
  worker.barrier();  // rows of x move between workers here
  const auto [begin, end] = worker.share(count);
  for (uint64_t i = begin; i < end; ++i) {
    float* y = buffers_.normed.values + i * d;
    kernels_.rms_norm(buffers_.x + step.batch.logit_rows[i] * static_cast<size_t>(d), weights_.output_norm, d,
                      config_.norm_eps, y);
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
