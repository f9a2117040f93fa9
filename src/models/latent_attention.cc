#include "models/latent_attention.h"

#include <array>

namespace kvasir {

void LatentAttention::run(Worker& worker, const ForwardBatch& batch, const KvStore& kv,
                          const LayerWeights& weights, uint32_t layer, const NormedRows& x,
                          const LastRows* last, PhaseClock& clock) const {
  const StepBuffers& b = ops_.buffers();
  auto rows = static_cast<uint32_t>(batch.tokens.size());
  project(worker, weights, x, rows);
  clock.mark(StepPhase::kQkv);
  const LayerHeads heads(ops_, weights, max_rows_, batch, kv, layer);
  runner_.ready_all(worker, batch, heads);
  if (last != nullptr && last->rows().empty()) return;
  absorb(worker, weights, rows);
  if (last == nullptr) {
    runner_.run(worker, batch, kv, layer, b, nullptr, nullptr);
  } else {
    rows = static_cast<uint32_t>(last->rows().size());
    attend_last(worker, *last, kv, layer, x);
  }
  clock.mark(StepPhase::kAttention);
  release(worker, weights, rows);
  ops_.add_branch(worker, weights.o, weights.o_bias, b.attn_q, b.attn, rows, weights.post_attn_norm);
  clock.mark(StepPhase::kAttnOut);
}

// Ends at a barrier, with all that the rows which go on have and are read for moved together.
void LatentAttention::attend_last(Worker& worker, const LastRows& last, const KvStore& kv, uint32_t layer,
                                  const NormedRows& x) const {
  const ModelConfig& c = ops_.config();
  const StepBuffers& b = ops_.buffers();
  runner_.run_last(worker, last.attended(), kv, layer, b, nullptr);
  for (uint32_t h = 0; h < c.heads; ++h)
    ops_.move_together(worker, last.rows(), b.mla.latent + size_t{h} * max_rows_ * c.mla->latent,
                       c.mla->latent, &b.mla.latent_q[h]);
  ops_.move_together(worker, last.rows(), b.x, c.hidden_dim, nullptr);
  ops_.move_together(worker, last.rows(), x.values, c.hidden_dim, &x.q);
  worker.barrier();
}

// Queries and cache rows as the weights give them. Ends at a barrier.
void LatentAttention::project(Worker& worker, const LayerWeights& weights, const NormedRows& x,
                              uint32_t rows) const {
  const ModelConfig& c = ops_.config();
  const StepBuffers& b = ops_.buffers();
  const LayerOps::Product raw = {&weights.q, weights.q_bias, b.mla.raw_q, c.raw_q_dim()};
  const LayerOps::Product row = {&weights.mla.kv_a, nullptr, b.k, c.kv_dim()};
  const uint32_t n = c.mla->query;
  if (n == 0) {
    const LayerOps::Product both[] = {raw, row};
    ops_.products(worker, both, x.q, x.values, rows);
    return worker.barrier();
  }
  const LayerOps::Product both[] = {{&weights.mla.q_a, nullptr, b.mla.query, n}, row};
  ops_.products(worker, both, x.q, x.values, rows);
  worker.barrier();
  const auto [begin, end] = worker.share(rows);
  for (uint64_t r = begin; r < end; ++r) {
    float* y = b.mla.query + r * n;
    ops_.norm({.weight = weights.mla.q_a_norm}, y, n, y);
    ops_.kernels().quantize_rows(y, n, 1, n, b.mla.query_q, static_cast<uint32_t>(r));
  }
  worker.barrier();
  ops_.products(worker, {&raw, 1}, b.mla.query_q, b.mla.query, rows);
  worker.barrier();
}

// Each head's query into the space of latents. Ends at a barrier.
void LatentAttention::absorb(Worker& worker, const LayerWeights& weights, uint32_t rows) const {
  const ModelConfig& c = ops_.config();
  const StepBuffers& b = ops_.buffers();
  std::array<LayerOps::Product, kLatentMaxRows> list;
  for (uint32_t h = 0; h < c.heads; ++h)
    list[h] = {.w = &weights.mla.k_b[h],
               .bias = nullptr,
               .out = b.q + size_t{h} * c.head_dim,
               .ldo = c.q_dim(),
               .x = &b.mla.nope_q[h],
               .xf = b.mla.nope + size_t{h} * max_rows_ * c.mla->nope_dim};
  ops_.products(worker, {list.data(), c.heads}, b.mla.nope_q[0], b.mla.nope, rows);
  worker.barrier();
}

// Each head's result out of the space of latents, and all of a row's quantised. Ends at a barrier.
void LatentAttention::release(Worker& worker, const LayerWeights& weights, uint32_t rows) const {
  const ModelConfig& c = ops_.config();
  const StepBuffers& b = ops_.buffers();
  std::array<LayerOps::Product, kLatentMaxRows> list;
  for (uint32_t h = 0; h < c.heads; ++h)
    list[h] = {.w = &weights.mla.v_b[h],
               .bias = nullptr,
               .out = b.attn + size_t{h} * c.mla->value_dim,
               .ldo = c.attn_dim(),
               .x = &b.mla.latent_q[h],
               .xf = b.mla.latent + size_t{h} * max_rows_ * c.mla->latent};
  ops_.products(worker, {list.data(), c.heads}, b.mla.latent_q[0], b.mla.latent, rows);
  worker.barrier();
  const uint32_t n = c.attn_dim();
  const auto [begin, end] = worker.share(rows);
  if (begin < end)
    ops_.kernels().quantize_rows(b.attn + begin * n, n, static_cast<uint32_t>(end - begin), n, b.attn_q,
                                 static_cast<uint32_t>(begin));
  worker.barrier();
}

}  // namespace kvasir
