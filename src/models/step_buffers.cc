#include "models/step_buffers.h"

namespace kvasir {

StepBuffers::StepBuffers(const ModelConfig& c, const CausalLm::Limits& limits, uint32_t threads) {
  const size_t rows = limits.max_rows;
  struct Part {
    float** target;
    size_t floats;
  };
  const Part parts[] = {
      {&x, rows * c.hidden_dim}, {&normed, rows * c.hidden_dim}, {&q, rows * c.q_dim()},
      {&k, rows * c.kv_dim()},   {&v, rows * c.kv_dim()},        {&attn, rows * c.q_dim()},
      {&gate, rows * c.ffn_dim}, {&up, rows * c.ffn_dim},        {&rope, 2 * rows * c.rope_dim},
  };
  const std::pair<QuantRows*, uint32_t> quant_parts[] = {
      {&hidden_q, c.hidden_dim}, {&attn_q, c.q_dim()}, {&ffn_q, c.ffn_dim}};
  const auto aligned = [](size_t bytes) { return (bytes + 63) / 64 * 64; };
  size_t total = threads * kScratchBytes;
  for (const Part& p : parts) total += aligned(p.floats * sizeof(float));
  for (const auto& [target, k_dim] : quant_parts) total += aligned(quant_rows_bytes(limits.max_rows, k_dim));

  memory_ = AlignedBuffer(total);
  scratch_ = memory_.data();
  size_t offset = threads * kScratchBytes;
  for (const Part& p : parts) {
    *p.target = reinterpret_cast<float*>(memory_.data() + offset);
    offset += aligned(p.floats * sizeof(float));
  }
  for (const auto& [target, k_dim] : quant_parts) {
    *target = carve_quant_rows(memory_.data() + offset, limits.max_rows, k_dim);
    offset += aligned(quant_rows_bytes(limits.max_rows, k_dim));
  }
}

}  // namespace kvasir
