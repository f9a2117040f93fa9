#pragma once

#include <cstdint>
#include <span>

#include "base/aligned_buffer.h"
#include "kernels/matrix.h"
#include "models/causal_lm.h"
#include "models/model_config.h"

namespace kvasir {

// The scratch of one forward pass, carved from one allocation sized by the limits. R = max_rows.
class StepBuffers {
 public:
  StepBuffers(const ModelConfig& config, const CausalLm::Limits& limits, uint32_t threads);

  float* x = nullptr;       // [R][hidden]       residual stream
  float* normed = nullptr;  // [R][hidden]       after a norm; also the branch before a post-norm
  float* q = nullptr;       // [R][q_dim]
  float* k = nullptr;       // [R][kv_dim]
  float* v = nullptr;       // [R][kv_dim]
  float* attn = nullptr;    // [R][q_dim]
  float* gate = nullptr;    // [R][ffn]          gate, then the activated product
  float* up = nullptr;      // [R][ffn]
  float* rope = nullptr;    // [2][R][rope_dim]  cos then sin of each row, for the global and the local base
  QuantRows hidden_q;       // [R][hidden]
  QuantRows attn_q;         // [R][q_dim]
  QuantRows ffn_q;          // [R][ffn]

  std::byte* scratch(uint32_t thread) const { return scratch_ + thread * kScratchBytes; }

  static constexpr size_t kScratchBytes =
      kLinearScratchBytes > kAttnScratchBytes ? kLinearScratchBytes : kAttnScratchBytes;

 private:
  AlignedBuffer memory_;
  std::byte* scratch_ = nullptr;
};

}  // namespace kvasir
