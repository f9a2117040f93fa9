#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/machine_spec.h"
#include "perf/model_shape.h"

namespace kvasir {

// A step: `sequences` of them, each with `rows` new tokens behind `context` computed ones. Decode is rows 1,
// prefill is rows S with context 0.
struct StepShape {
  uint64_t sequences = 1;
  uint64_t rows = 1;
  uint64_t context = 0;
  uint64_t logit_rows = 1;  // rows per sequence that want logits

  double tokens() const { return static_cast<double>(sequences) * static_cast<double>(rows); }
};

// How numbers are stored, for the bytes.
struct StepFormats {
  const WeightFormat* weights = nullptr;  // nullptr: as the shape's source stores them
  KvFormat kv;
  double activation_bytes = 2;
};

// FLOPs 2 m k n and bytes of an (m x k) by (k x n) product: weights k n w / 8 once, activations (m k + m n)
// a. Book, "Roofline". A multiply-add is two FLOPs.
struct Work {
  double flops = 0;
  double weight_bytes = 0;
  double kv_bytes = 0;
  double activation_bytes = 0;

  double bytes() const { return weight_bytes + kv_bytes + activation_bytes; }
  // FLOPs per byte; 0 for no bytes.
  double intensity() const { return bytes() > 0 ? flops / bytes() : 0; }
  Work& operator+=(const Work& other);
};
Work matmul_work(double m, double k, double n, double weight_bits, double activation_bytes);

// One kind of operation over all layers.
struct LayerWork {
  std::string name;  // "attention projections", "attention", "feed-forward", "experts", "output head"
  Work work;
};

// The work of a step by kind, in the order of a layer; kinds that a model lacks are left out.
//   attention projections   W_Q, W_K, W_V, W_O; of MLA the compressions and W_O
//   attention               scores and values: 4 N H FLOPs per pair of row and visible position, K and V read
//                           once per sequence and position. MLA absorbed (decode and short chunks, the latent
//                           is the key and the value): 2 N (2 R_kv + H_rope) per pair and 2 N R_kv (H_nope +
//                           H_v) per row; see absorbs() for when. Decompressed: 2 N (H_nope + H_rope + H_v)
//                           per pair and 2 R_kv N (H_nope + H_v) per position.
//   feed-forward            m D F of dense layers
//   experts                 routed, shared and router; weights of expected_experts()
//   output head             V D for the rows that want logits
// Visible positions are those of step_cost.h. Causal attention, windows considered.
std::vector<LayerWork> step_work(const ModelShape& shape, const StepShape& step, const StepFormats& formats);
Work total_work(const std::vector<LayerWork>& layers);

// Whether MLA with so many query rows per sequence needs no more multiply-adds absorbed than decompressed,
// over a context that is much longer: per head and position rows (2 R_kv + H_rope) against rows (H_nope +
// H_rope + H_v) + R_kv (H_nope + H_v). Absorption: DeepSeek-V2, section 2.1.2.
bool absorbs(const ModelShape::Mla& mla, uint64_t rows);

// 2 P FLOPs per token in the matrices of P weights: Kaplan et al. 2020 (arXiv 2001.08361), section 2.1.
// Of a mixture the weights that a token uses; the embedding is looked up, not multiplied.
double matrix_flops_per_token(const ModelShape& shape);

// peak / bandwidth: FLOPs per byte from which computing takes longer than reading. Williams, Waterman and
// Patterson 2009 (CACM 52(4)). `bits` is the width of the numbers multiplied.
double ridge_point(const MachineSpec& machine, uint32_t bits);

// max(flops / peak, bytes / bandwidth) in seconds: the roofline. `bits` as above.
double roofline_seconds(const Work& work, const MachineSpec& machine, uint32_t bits);

}  // namespace kvasir
