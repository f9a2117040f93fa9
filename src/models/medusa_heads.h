#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/thread_pool.h"
#include "kernels/table.h"
#include "models/guess_head.h"
#include "models/own_matrix.h"

namespace kvasir {

// What the heads of Medusa (Cai et al., arXiv 2401.10774) are made of: head i takes what the target's output
// head reads at a token through residual blocks, x + silu(W x + b), and an output head, to a guess of the
// token two places and i further on.
struct MedusaWeights {
  struct Block {
    OwnMatrix weight;         // (width, width)
    std::vector<float> bias;  // (width), or empty
  };
  std::vector<std::vector<Block>> heads;            // each with as many blocks
  std::vector<std::shared_ptr<GuessHead>> outputs;  // of each head; one and the same, or its own

  uint32_t width() const { return heads[0][0].weight.packed().n; }
  size_t bytes() const;
};

// Runs heads over states of several sequences at once. Everything is allocated at construction.
class MedusaHeads {
 public:
  // With room for the states of so many sequences for each head.
  MedusaHeads(MedusaWeights weights, const KernelTable& kernels, ThreadPool& pool, uint32_t max_sequences);

  uint32_t count() const { return static_cast<uint32_t>(weights_.heads.size()); }
  uint32_t max_sequences() const { return max_rows_ / count(); }
  const MedusaWeights& weights() const { return weights_; }

  // The states that the next run() reads, [rows][width], to be filled in: those of head 0, then those of head
  // 1, ...
  float* states() { return x_; }
  // Computes: rows_of_head[i] states are head i's.
  void run(std::span<const uint32_t> rows_of_head);
  // Logits of a row of the last run, as its output head's take_best() reads them.
  const float* logits(uint32_t row) const { return logits_.as<float>().data() + row * stride_; }

 private:
  void run_worker(Worker& worker, std::span<const uint32_t> rows_of_head);
  void run_blocks(Worker& worker, std::span<const uint32_t> rows_of_head, size_t block);
  void run_outputs(Worker& worker, std::span<const uint32_t> rows_of_head);
  void quantize_share(const Worker& worker, uint32_t rows) const;
  std::byte* scratch(const Worker& worker) const;

  MedusaWeights weights_;
  const KernelTable& kernels_;
  ThreadPool& pool_;
  uint32_t max_rows_, width_;
  size_t stride_ = 0;  // of logits_
  AlignedBuffer states_, products_, ones_, quantised_, logits_, scratch_;
  float* x_;
  float* y_;
  QuantRows q_;
};

}  // namespace kvasir
