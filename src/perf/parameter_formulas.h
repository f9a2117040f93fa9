#pragma once

#include <cstdint>

#include "perf/model_shape.h"

namespace kvasir {

// 2 V D + 3 D F L + (2 D N H + 2 D K H) L: embedding and output head; gate, up and down; W_Q and W_O, W_K and
// W_V. With tied embeddings V D in place of 2 V D. Book, "Transformers" (parameter counts) and "Inference".
// Norms and biases are left out. For dense MHA, GQA and MQA; uses F of the shape.
uint64_t plain_parameters(const ModelShape& shape);

// Weights by what they do; each is the sum over all layers. Exact for the architectures of model_shape.h.
struct ParameterCount {
  uint64_t embedding = 0;  // V D
  uint64_t head = 0;       // V D; 0 when tied
  // MHA, GQA, MQA: (2 D N H + 2 D K H) L. MLA (DeepSeek-V2, section 2.1), per layer: queries
  // D N (H_nope + H_rope), or with compression D R_q + R_q N (H_nope + H_rope); D (R_kv + H_rope);
  // R_kv N (H_nope + H_v); N H_v D.
  uint64_t attention = 0;
  uint64_t dense_ffn = 0;  // m D F of every dense layer; m = 3 with a gate, else 2
  uint64_t experts = 0;    // E m D F_e of every layer with experts
  uint64_t shared = 0;     // m D F_shared of those
  uint64_t router = 0;     // D E of those, and D for a gate of the shared experts
  uint64_t vectors = 0;    // norms and biases

  // What the formulas of bytes and time count: everything but the vectors. Of a dense model with untied
  // embeddings it is plain_parameters().
  uint64_t matrices() const { return embedding + head + attention + dense_ffn + experts + shared + router; }
  uint64_t total() const { return matrices() + vectors; }
};
ParameterCount count_parameters(const ModelShape& shape);

// Matrix weights that one token uses: matrices() less the routed experts it does not use,
// experts * A / E in place of experts. Of a dense model all.
uint64_t active_parameters(const ModelShape& shape);

// E (1 - (1 - A/E)^tokens): the routed experts of a layer of which at least one of so many tokens makes use,
// on average, if each token chose A of E evenly and independently. Real routers are skewed, so fewer.
double expected_experts(uint32_t experts, uint32_t used, double tokens);

// Bytes of all matrix weights: what a file's directory says exactly, or parameters * bits / 8
// (weights.bytes). The directory's number holds for the stored format only: `format` nullptr.
double parameter_bytes(const ModelShape& shape, const WeightFormat* format = nullptr);

// Of those, the routed experts': what the directory says, or the same part of the bytes as of the parameters.
// 0 for a dense model.
double expert_bytes(const ModelShape& shape, const WeightFormat* format = nullptr);

// Bytes of the embedding: what the directory says, or V D bits / 8.
double embedding_bytes(const ModelShape& shape, const WeightFormat* format = nullptr);

// Bytes of weights that the book's step time counts ("Inference", KV + parameters over bandwidth) for
// `tokens` rows: all of a dense model's, an embedding that is only looked up included; of a mixture's routed
// experts expected_experts() / E.
double step_weight_bytes(const ModelShape& shape, const WeightFormat* format, double tokens);

// Bytes of weights that such a step really reads: step_weight_bytes() without the rows of an embedding that
// no token looks up, which are all but one per token. A tied embedding is the head, and read.
double weight_bytes_read(const ModelShape& shape, const WeightFormat* format, double tokens);

}  // namespace kvasir
