#include <fmt/format.h>

#include <string>
#include <utility>

#include "perf/parameter_formulas.h"
#include "perf/report_parts.h"

namespace kvasir::report {
namespace {

std::string matrix_factor(const ModelShape& s) {
  return s.ffn_matrices == 3 ? "3" : "2";
}

void add_plain_parameters(const Report& r) {
  const ModelShape& s = r.shape;
  r.out.add({.id = "parameters",
             .title = "parameters",
             .value = static_cast<double>(r.stats.parameters),
             .unit = "",
             .formula = fmt::format("{} * D + {} * D * F * L + (2 * D * N * H + 2 * D * K * H) * L",
                                    s.tied_embeddings ? "V" : "2 * V", matrix_factor(s)),
             .inputs = {given("V", "vocabulary", s.vocab), width(s), given("F", "feed-forward width", s.ffn),
                        layer_count(s), query_heads(s), given("K", "KV heads", s.kv_heads),
                        given("H", "head size", s.head_dim)},
             .source = kTransformers});
}

void add_attention_parameters(const Report& r, const ParameterCount& count) {
  const ModelShape& s = r.shape;
  Quantity q{.id = "attention_parameters",
             .title = "parameters of attention",
             .value = static_cast<double>(count.attention),
             .unit = "",
             .formula = "(2 * D * N * H + 2 * D * K * H) * L",
             .inputs = {width(s), query_heads(s), layer_count(s)},
             .source = kTransformers};
  if (!s.mla) {
    q.inputs.push_back(given("K", "KV heads", s.kv_heads));
    q.inputs.push_back(given("H", "head size", s.head_dim));
  } else {
    const ModelShape::Mla& m = *s.mla;
    const bool compressed = m.q_lora_rank > 0;
    q.formula = fmt::format("({} + D * (C + R) + C * N * (P + U) + N * U * D) * L",
                            compressed ? "D * Q + Q * N * (P + R)" : "D * N * (P + R)");
    q.inputs.push_back(given("C", "rank of the latent", m.kv_lora_rank));
    q.inputs.push_back(given("R", "rotated part of a key", m.qk_rope_head_dim));
    q.inputs.push_back(given("P", "other part of a key", m.qk_nope_head_dim));
    q.inputs.push_back(given("U", "value size", m.v_head_dim));
    if (compressed) q.inputs.push_back(given("Q", "rank of the queries", m.q_lora_rank));
    q.source = kDeepSeek;
  }
  r.out.add(std::move(q));
}

void add_expert_parameters(const Report& r, const ParameterCount& count) {
  const ModelShape& s = r.shape;
  const ModelShape::Moe& moe = *s.moe;
  Quantity q{.id = "expert_parameters",
             .title = "parameters of the routed experts",
             .value = static_cast<double>(count.experts),
             .unit = "",
             .formula = fmt::format("M * E * {} * D * X", matrix_factor(s)),
             .inputs = {given("M", "layers with experts", s.moe_layers()),
                        given("E", "experts of a layer", moe.experts), width(s),
                        given("X", "width of an expert", moe.expert_ffn_dim)},
             .source = kDeepSeek};
  r.out.add(std::move(q));
  r.out.add({.id = "shared_parameters",
             .title = "parameters of the shared experts and the router",
             .value = static_cast<double>(count.shared + count.router),
             .unit = "",
             .formula = fmt::format("M * D * ({} * Y + E + g)", matrix_factor(s)),
             .inputs = {given("M", "layers with experts", s.moe_layers()), width(s),
                        given("Y", "width of the shared experts", moe.shared_ffn_dim),
                        given("E", "experts of a layer", moe.experts),
                        given("g", "gates of the shared experts", moe.shared_gate ? 1 : 0)},
             .source = kDeepSeek});
}

void add_parameters_by_part(const Report& r) {
  const ModelShape& s = r.shape;
  const ParameterCount count = count_parameters(s);
  r.out.add(
      {.id = "embedding_parameters",
       .title = s.tied_embeddings ? "parameters of the embedding" : "parameters of embedding and output head",
       .value = static_cast<double>(count.embedding + count.head),
       .unit = "",
       .formula = s.tied_embeddings ? "V * D" : "2 * V * D",
       .inputs = {given("V", "vocabulary", s.vocab), width(s)},
       .source = kTransformers});
  add_attention_parameters(r, count);
  r.out.add({.id = "ffn_parameters",
             .title = "parameters of the dense feed-forward parts",
             .value = static_cast<double>(count.dense_ffn),
             .unit = "",
             .formula = fmt::format("{} * D * F * l", matrix_factor(s)),
             .inputs = {width(s), given("F", "feed-forward width", s.ffn),
                        given("l", "dense layers", s.dense_layers())},
             .source = kTransformers});
  Quantity sum{
      .id = "parameters",
      .title = "parameters",
      .value = static_cast<double>(r.stats.parameters),
      .unit = "",
      .formula = "V + A + F",
      .inputs = {of("V", "embedding_parameters"), of("A", "attention_parameters"), of("F", "ffn_parameters")},
      .source = "the sum of the matrices"};
  if (s.moe) {
    add_expert_parameters(r, count);
    sum.formula += " + X + Y";
    sum.inputs.push_back(of("X", "expert_parameters"));
    sum.inputs.push_back(of("Y", "shared_parameters"));
  }
  r.out.add(std::move(sum));
}

void add_parameter_bytes(const Report& r) {
  const ModelShape& s = r.shape;
  Quantity q{.id = "parameter_bytes", .title = "weights", .value = r.stats.parameter_bytes, .unit = "bytes"};
  if (!r.options.weights && s.stored_bytes) {
    q.formula = "T";
    q.inputs = {given("T", "all tensors of the file", static_cast<double>(*s.stored_bytes), "bytes")};
    q.source = s.source;
  } else {
    const WeightFormat& format = r.options.weights ? *r.options.weights : s.weights;
    q.formula = "n * w / 8";
    q.inputs = {of("n", "parameters"),
                given("w", fmt::format("bits per weight as {}", format.name), format.bits)};
    q.source =
        "bits per weight: ggml's block formats (src/base/dtype.h) or llama.cpp tools/quantize/README.md";
  }
  r.out.add(std::move(q));
}

}  // namespace

void add_parameters(const Report& r) {
  if (r.shape.moe || r.shape.mla)
    add_parameters_by_part(r);
  else
    add_plain_parameters(r);
  add_parameter_bytes(r);
}

}  // namespace kvasir::report
