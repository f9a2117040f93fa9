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
  float* ffn = nullptr;     // [R][ffn]          the activated product, where a matrix of floats reads it
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

  // With many rows, a thread takes this many panels at a time: 128 columns of 512 rows fill half of a 1 MiB
  // cache. With few, all that it was dealt.
  static constexpr uint32_t kStretchRows = 24;
  static constexpr uint32_t kStretchPanels = 8;
  static uint32_t stretch(uint32_t rows, uint32_t panels) {
    return rows >= kStretchRows ? kStretchPanels : panels;
  }
  // A thread's own columns of gate and up, a stretch of rows behind one another: in rows as long as the
  // model's they would fall on few sets of its cache.
  float* gate_tile(uint32_t thread) const { return tiles_ + 2 * thread * tile_floats_; }
  float* up_tile(uint32_t thread) const { return gate_tile(thread) + tile_floats_; }

  std::byte* scratch(uint32_t thread) const { return scratch_ + thread * kScratchBytes; }

  size_t bytes() const { return memory_.size(); }

  static constexpr size_t kScratchBytes =
      kLinearScratchBytes > kAttnScratchBytes ? kLinearScratchBytes : kAttnScratchBytes;

 private:
  AlignedBuffer memory_;
  std::vector<NormedRows> own_normed_;
  size_t tile_floats_ = 0;
  float* tiles_ = nullptr;
  std::byte* scratch_ = nullptr;
};

}  // namespace kvasir
