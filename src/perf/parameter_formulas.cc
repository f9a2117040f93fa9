#include "perf/parameter_formulas.h"

#include <algorithm>
#include <cmath>

namespace kvasir {
namespace {

// Matrices of one layer's attention.
uint64_t layer_attention(const ModelShape& s) {
  const uint64_t d = s.hidden, n = s.heads;
  if (!s.mla) return 2 * d * n * s.head_dim + 2 * d * s.kv_heads * s.head_dim;
  const ModelShape::Mla& m = *s.mla;
  const uint64_t q_dim = n * (m.qk_nope_head_dim + m.qk_rope_head_dim);
  const uint64_t query = m.q_lora_rank > 0 ? d * m.q_lora_rank + m.q_lora_rank * q_dim : d * q_dim;
  const uint64_t latent =
      d * (m.kv_lora_rank + m.qk_rope_head_dim) + m.kv_lora_rank * n * (m.qk_nope_head_dim + m.v_head_dim);
  return query + latent + n * m.v_head_dim * d;
}

// Norms and biases of one layer, router apart.
uint64_t layer_vectors(const ModelShape& s) {
  uint64_t values = uint64_t{s.norms_per_layer} * s.hidden * (s.norm_bias ? 2 : 1) + s.qk_norm;
  if (s.mla) values += s.mla->kv_lora_rank + s.mla->q_lora_rank;
  if (s.qkv_bias) values += (uint64_t{s.heads} + 2 * s.kv_heads) * s.head_dim;
  if (s.output_bias) values += s.hidden;
  if (s.attention_sinks) values += s.heads;
  return values;
}

}  // namespace

uint64_t plain_parameters(const ModelShape& s) {
  const uint64_t v = s.vocab, d = s.hidden, f = s.ffn, l = s.layers, n = s.heads, k = s.kv_heads,
                 h = s.head_dim;
  return (s.tied_embeddings ? v * d : 2 * v * d) + 3 * d * f * l + (2 * d * n * h + 2 * d * k * h) * l;
}

ParameterCount count_parameters(const ModelShape& s) {
  const uint64_t d = s.hidden, matrices = s.ffn_matrices;
  ParameterCount count;
  count.embedding = uint64_t{s.vocab} * d;
  count.head = s.tied_embeddings ? 0 : count.embedding;
  count.attention = layer_attention(s) * s.layers;
  count.dense_ffn = matrices * d * s.ffn * s.dense_layers();
  count.vectors = layer_vectors(s) * s.layers + d * (s.norm_bias ? 2 : 1);  // and the last norm
  if (s.ffn_bias) count.vectors += s.dense_layers() * ((matrices - 1) * s.ffn + d);
  if (!s.moe) return count;
  const uint64_t layers = s.moe_layers();
  count.experts = layers * s.moe->experts * matrices * d * s.moe->expert_ffn_dim;
  count.shared = layers * matrices * d * s.moe->shared_ffn_dim;
  count.router = layers * d * (uint64_t{s.moe->experts} + (s.moe->shared_gate ? 1 : 0));
  count.vectors += s.moe->selection_bias ? layers * s.moe->experts : 0;
  if (s.moe->biases)
    count.vectors += layers * s.moe->experts * (1 + (matrices - 1) * s.moe->expert_ffn_dim + d);
  return count;
}

uint64_t active_parameters(const ModelShape& s) {
  const ParameterCount count = count_parameters(s);
  if (!s.moe) return count.matrices();
  return count.matrices() - count.experts / s.moe->experts * (s.moe->experts - s.moe->experts_used);
}

double expected_experts(uint32_t experts, uint32_t used, double tokens) {
  if (experts == 0) return 0;
  return experts * (1 - std::pow(1 - static_cast<double>(used) / experts, tokens));
}

double parameter_bytes(const ModelShape& s, const WeightFormat* format) {
  if (format == nullptr && s.stored_bytes) return static_cast<double>(*s.stored_bytes);
  return (format != nullptr ? *format : s.weights).bytes(static_cast<double>(count_parameters(s).matrices()));
}

double expert_bytes(const ModelShape& s, const WeightFormat* format) {
  if (!s.moe) return 0;
  if (format == nullptr && s.stored_expert_bytes) return static_cast<double>(*s.stored_expert_bytes);
  const ParameterCount count = count_parameters(s);
  return parameter_bytes(s, format) * static_cast<double>(count.experts) /
         static_cast<double>(count.matrices());
}

double embedding_bytes(const ModelShape& s, const WeightFormat* format) {
  if (format == nullptr && s.stored_embedding_bytes) return static_cast<double>(*s.stored_embedding_bytes);
  return (format != nullptr ? *format : s.weights).bytes(static_cast<double>(count_parameters(s).embedding));
}

double step_weight_bytes(const ModelShape& s, const WeightFormat* format, double tokens) {
  const double all = parameter_bytes(s, format);
  if (!s.moe) return all;
  const double touched = expected_experts(s.moe->experts, s.moe->experts_used, tokens) / s.moe->experts;
  return all - expert_bytes(s, format) * (1 - touched);
}

double weight_bytes_read(const ModelShape& s, const WeightFormat* format, double tokens) {
  const double counted = step_weight_bytes(s, format, tokens);
  if (s.tied_embeddings || s.vocab == 0) return counted;
  const double vocab = s.vocab;
  return counted - embedding_bytes(s, format) * (1 - std::min(tokens, vocab) / vocab);
}

}  // namespace kvasir
