#include "perf/work_formulas.h"

#include <algorithm>

#include "perf/kv_formulas.h"
#include "perf/parameter_formulas.h"
#include "perf/step_cost.h"

namespace kvasir {
namespace {

// The parts of a step that its matrices share.
struct Step {
  const ModelShape& shape;
  const StepShape& step;
  const StepFormats& formats;

  double tokens() const { return step.tokens(); }
  double weight_bits() const {
    if (formats.weights != nullptr) return formats.weights->bits;
    return shape.weights.bits;
  }
  Work matmul(double m, double k, double n) const {
    return matmul_work(m, k, n, weight_bits(), formats.activation_bytes);
  }
  StepRows rows() const { return {static_cast<uint32_t>(step.rows), static_cast<uint32_t>(step.context)}; }
};

Work times(Work work, double count) {
  work.flops *= count;
  work.weight_bytes *= count;
  work.kv_bytes *= count;
  work.activation_bytes *= count;
  return work;
}

Work projections(const Step& s) {
  const ModelShape& shape = s.shape;
  const double d = shape.hidden, n = shape.heads;
  Work work;
  if (shape.mla) {
    const ModelShape::Mla& m = *shape.mla;
    const double q_dim = n * (m.qk_nope_head_dim + m.qk_rope_head_dim);
    if (m.q_lora_rank > 0) {
      work += s.matmul(s.tokens(), d, m.q_lora_rank);
      work += s.matmul(s.tokens(), m.q_lora_rank, q_dim);
    } else {
      work += s.matmul(s.tokens(), d, q_dim);
    }
    work += s.matmul(s.tokens(), d, m.kv_lora_rank + m.qk_rope_head_dim);
    work += s.matmul(s.tokens(), n * m.v_head_dim, d);
  } else {
    const double q_dim = n * shape.head_dim, kv_dim = static_cast<double>(shape.kv_heads) * shape.head_dim;
    work += s.matmul(s.tokens(), d, q_dim);
    work += s.matmul(s.tokens(), d, 2 * kv_dim);
    work += s.matmul(s.tokens(), q_dim, d);
  }
  return times(work, shape.layers);
}

// FLOPs of MLA attention of one sequence in one layer.
double mla_flops(const ModelShape& shape, const StepRows& rows, double pairs, double seen) {
  const ModelShape::Mla& m = *shape.mla;
  const double n = shape.heads, rank = m.kv_lora_rank, rope = m.qk_rope_head_dim, nope = m.qk_nope_head_dim,
               value = m.v_head_dim;
  if (absorbs(m, rows.rows))
    return 2 * n * (2 * rank + rope) * pairs + 2 * n * rank * (nope + value) * rows.rows;
  return 2 * n * (nope + rope + value) * pairs + 2 * rank * n * (nope + value) * seen;
}

Work attention(const Step& s) {
  const ModelShape& shape = s.shape;
  const StepRows rows = s.rows();
  const double q_dim = static_cast<double>(shape.heads) * shape.head_dim;
  const double token_bytes = kv_bytes_per_token_layer(shape, s.formats.kv);
  const double out_dim = shape.mla ? static_cast<double>(shape.heads) * shape.mla->v_head_dim : q_dim;
  Work work;
  for (const WindowGroup& group : window_groups(shape)) {
    const auto pairs = static_cast<double>(visible_pairs(rows, group.window));
    const auto seen = static_cast<double>(seen_positions(rows, group.window));
    Work layer;
    layer.flops = shape.mla ? mla_flops(shape, rows, pairs, seen) : 4 * q_dim * pairs;
    layer.kv_bytes = seen * token_bytes;
    layer.activation_bytes = s.formats.activation_bytes * (q_dim + out_dim) * rows.rows;
    layer = times(layer, static_cast<double>(s.step.sequences));
    // Once for all sequences.
    if (shape.mla)
      layer.weight_bytes = static_cast<double>(shape.mla->kv_lora_rank) * shape.heads *
                           (shape.mla->qk_nope_head_dim + shape.mla->v_head_dim) * s.weight_bits() / 8;
    work += times(layer, group.layers);
  }
  return work;
}

Work feed_forward(const Step& s, double width) {
  const double d = s.shape.hidden;
  Work work = s.matmul(s.tokens(), d, (s.shape.ffn_matrices - 1) * width);
  work += s.matmul(s.tokens(), width, d);
  return work;
}

// Routed experts of one layer: every token passes through A of them; the weights of those touched are read.
Work experts(const Step& s) {
  const ModelShape::Moe& moe = *s.shape.moe;
  Work work = feed_forward(s, moe.expert_ffn_dim);
  const double one = work.weight_bytes;
  work = times(work, moe.experts_used);
  work.weight_bytes = one * expected_experts(moe.experts, moe.experts_used, s.tokens());
  work += s.matmul(s.tokens(), s.shape.hidden, moe.experts + (moe.shared_gate ? 1.0 : 0.0));
  if (moe.shared_ffn_dim > 0) work += feed_forward(s, moe.shared_ffn_dim);
  return work;
}

}  // namespace

Work& Work::operator+=(const Work& other) {
  flops += other.flops;
  weight_bytes += other.weight_bytes;
  kv_bytes += other.kv_bytes;
  activation_bytes += other.activation_bytes;
  return *this;
}

Work matmul_work(double m, double k, double n, double weight_bits, double activation_bytes) {
  Work work;
  work.flops = 2 * m * k * n;
  work.weight_bytes = k * n * weight_bits / 8;
  work.activation_bytes = (m * k + m * n) * activation_bytes;
  return work;
}

std::vector<LayerWork> step_work(const ModelShape& shape, const StepShape& step, const StepFormats& formats) {
  const Step s{shape, step, formats};
  std::vector<LayerWork> layers = {{"attention projections", projections(s)}, {"attention", attention(s)}};
  if (shape.dense_layers() > 0)
    layers.push_back({"feed-forward", times(feed_forward(s, shape.ffn), shape.dense_layers())});
  if (shape.moe_layers() > 0) layers.push_back({"experts", times(experts(s), shape.moe_layers())});
  const double logit_rows = static_cast<double>(step.sequences) * static_cast<double>(step.logit_rows);
  if (logit_rows > 0) layers.push_back({"output head", s.matmul(logit_rows, shape.hidden, shape.vocab)});
  return layers;
}

Work total_work(const std::vector<LayerWork>& layers) {
  Work total;
  for (const LayerWork& layer : layers) total += layer.work;
  return total;
}

bool absorbs(const ModelShape::Mla& m, uint64_t rows) {
  const double decompress = static_cast<double>(m.kv_lora_rank) * (m.qk_nope_head_dim + m.v_head_dim);
  const double absorbed = 2.0 * m.kv_lora_rank + m.qk_rope_head_dim;
  const double direct = static_cast<double>(m.qk_nope_head_dim) + m.qk_rope_head_dim + m.v_head_dim;
  return static_cast<double>(rows) * (absorbed - direct) <= decompress;
}

double matrix_flops_per_token(const ModelShape& s) {
  const ParameterCount count = count_parameters(s);
  // A tied head is the embedding, multiplied once; an untied embedding is only looked up.
  const uint64_t looked_up = s.tied_embeddings ? 0 : count.embedding;
  return 2 * static_cast<double>(active_parameters(s) - looked_up);
}

double ridge_point(const MachineSpec& machine, uint32_t bits) {
  return 2 * machine.macs(bits) / machine.bandwidth;
}

double roofline_seconds(const Work& work, const MachineSpec& machine, uint32_t bits) {
  return std::max(work.flops / (2 * machine.macs(bits)), work.bytes() / machine.bandwidth);
}

}  // namespace kvasir
