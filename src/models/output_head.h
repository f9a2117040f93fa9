#pragma once

#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kernels/best_logits.h"
#include "kernels/matrix.h"
#include "kernels/table.h"
#include "models/causal_lm.h"
#include "models/forward_batch.h"

namespace kvasir {

// The product of normed rows with the vocabulary. Where a row's best logits are enough, threads compute a few
// panels at a time into a tile that stays in their cache and keep what ranks among the best, so that rows of
// vocabulary size are neither written nor read again. Everything is allocated at construction.
class OutputHead {
 public:
  OutputHead(const ModelConfig& config, const CausalLm::Limits& limits, const KernelTable& kernels,
             uint32_t threads);

  size_t bytes() const { return tiles_.size(); }

  struct Args {
    const ForwardBatch& batch;
    const PackedMatrix& weights;
    const QuantRows& x;       // [logit rows][hidden], normed
    const float* xf;          // the same, as floats
    std::span<float> logits;  // as CausalLm::forward() says
    std::span<BestLogits> best;
    std::byte* scratch;  // this worker's, kLinearScratchBytes
  };
  // On all threads together. Results are whole when all have returned.
  void run(Worker& worker, const Args& args);

 private:
  uint32_t tokens(const ForwardBatch& batch) const;
  void multiply(const Args& args, uint32_t begin, uint32_t end, float* out, size_t ldo) const;
  void take_tile(const Args& args, const float* tile, uint32_t panels, TokenId first, BestLogits* found);
  void merge(Worker& worker, const Args& args);

  const KernelTable& kernels_;
  uint32_t vocab_;
  float scale_;
  float softcap_;
  uint32_t max_rows_;
  uint32_t tile_floats_;
  AlignedBuffer tiles_;            // [threads][tile_floats_]
  std::vector<BestLogits> found_;  // [threads][max_rows_]
};

}  // namespace kvasir
