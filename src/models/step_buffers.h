#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "kernels/matrix.h"
#include "models/causal_lm.h"
#include "models/model_config.h"

namespace kvasir {

// Rows after a norm, and quantised.
struct NormedRows {
  float* values = nullptr;  // [rows][hidden]
  QuantRows q;
};

// The scratch of one forward pass, carved from one allocation sized by the limits. R = max_rows.
class StepBuffers {
 public:
  StepBuffers(const ModelConfig& config, const CausalLm::Limits& limits, uint32_t threads);

  float* x = nullptr;       // [R][hidden]       residual stream
  NormedRows normed;        // [R][hidden]       what a part of a layer reads
  float* branch = nullptr;  // [R][hidden]     what it computed, where more is done before it is added
  float* q = nullptr;       // [R][q_dim]        what attention reads
  float* k = nullptr;       // [R][kv_dim]
  float* v = nullptr;       // [R][kv_dim]       none with MLA
  float* attn = nullptr;    // [R][attn_dim]     what the output matrix reads
  float* gate = nullptr;    // [R][ffn]          gate, then the activated product, of the part at hand
  float* up = nullptr;      // [R][ffn]          (ffn: the widest that all rows pass through)
  float* rope = nullptr;    // [2][R][rope_dim]  cos then sin of each row, for the global and the local base
  QuantRows attn_q;         // [R][attn_dim]
  QuantRows ffn_q;          // [R][ffn]

  // With MLA only. Rows of single heads lie head by head, for each head has a matrix of its own.
  struct Mla {
    float* query = nullptr;           // [R][query]      the queries' latent
    QuantRows query_q;                // [R][query]
    float* raw_q = nullptr;           // [R][raw_q_dim]  before they are absorbed
    float* nope = nullptr;            // [heads][R][nope_dim]  their parts without positions
    std::vector<QuantRows> nope_q;    // [heads][R][nope_dim]
    float* latent = nullptr;          // [heads][R][latent]    attention's results
    std::vector<QuantRows> latent_q;  // [heads][R][latent]
  };
  Mla mla;

  // A thread's own normed rows, for steps of up to kOwnRows rows: each thread norms them all for itself,
  // which takes less time than to meet the others.
  static constexpr uint32_t kOwnRows = 2;
  const NormedRows& own_normed(uint32_t thread) const { return own_normed_[thread]; }

  std::byte* scratch(uint32_t thread) const { return scratch_ + thread * kScratchBytes; }

  size_t bytes() const { return memory_.size(); }

  static constexpr size_t kScratchBytes =
      kLinearScratchBytes > kAttnScratchBytes ? kLinearScratchBytes : kAttnScratchBytes;

 private:
  AlignedBuffer memory_;
  std::vector<NormedRows> own_normed_;
  std::byte* scratch_ = nullptr;
};

}  // namespace kvasir
