#pragma once

#include <span>

#include "base/thread_pool.h"
#include "kernels/table.h"
#include "models/model_config.h"
#include "models/step_buffers.h"
#include "models/weights.h"

namespace kvasir {

// What every kind of layer is made of: norms of rows, products with matrices, and the addition of what a part
// computed to the residual stream. All threads call together; each takes its share of rows or output panels.
class LayerOps {
 public:
  // Everything outlives it.
  LayerOps(const ModelConfig& config, const KernelTable& kernels, const StepBuffers& buffers)
      : config_(config), kernels_(kernels), buffers_(buffers) {}

  // One matrix of a phase: out[rows][ldo] (+)= x . w + bias; `x` and `xf` where they are not the phase's.
  struct Product {
    const PackedMatrix* w;
    const float* bias;
    float* out;
    size_t ldo;
    LinearOutput mode = LinearOutput::kStore;
    const QuantRows* x = nullptr;
    const float* xf = nullptr;
  };

  // One row of n values through a norm; y may be x.
  void norm(const NormWeights& weights, const float* x, uint32_t n, float* y) const;

  // Whether each thread prepares all rows for itself, and no barrier follows.
  bool rows_alone(uint32_t rows) const;
  // What a part of a layer reads: rows of the residual stream through the norm (as they are where there is
  // none), and quantised. Where all threads can do so for themselves, all rows; else this worker's share, up
  // to a barrier.
  const NormedRows& input_rows(Worker& worker, uint32_t rows, const NormWeights& weights) const;

  // Moves rows `from` (ascending) of values[..][columns] to the front and quantises them there, into `q`
  // where it is given. No barrier.
  void move_together(Worker& worker, std::span<const uint32_t> from, float* values, uint32_t columns,
                     const QuantRows* q) const;

  // Deals the panels of all matrices of a phase out to the workers as if they were one matrix. No barrier.
  void products(Worker& worker, std::span<const Product> list, const QuantRows& x, const float* xf,
                uint32_t rows) const;

  // In how many panels a matrix of so many is dealt out: a multiple of two.
  static uint64_t piece_of(const Worker& worker, uint64_t panels);

  // Panels [begin, end) of w times rows, plus their part of bias (or null), by this worker alone: into
  // out[rows][columns of those panels]. No barrier.
  struct Columns {
    const PackedMatrix& w;
    const float* bias;
    uint32_t begin, end;
  };
  void multiply(const Worker& worker, const Columns& columns, const QuantRows& x, const float* xf,
                uint32_t rows, float* out) const;

  // Adds x . w + bias to the residual stream, through the part's own norm and factor where the model has
  // them. Ends at a barrier.
  void add_branch(Worker& worker, const PackedMatrix& w, const float* bias, const QuantRows& x,
                  const float* xf, uint32_t rows, const NormWeights& post_norm) const;
  // The same of what lies in buffers().branch, of which this worker has written `count` columns from `first`
  // on. Ends at a barrier.
  void add_columns(Worker& worker, uint32_t first, uint32_t count, uint32_t rows,
                   const NormWeights& post_norm) const;

  const ModelConfig& config() const { return config_; }
  const KernelTable& kernels() const { return kernels_; }
  const StepBuffers& buffers() const { return buffers_; }

 private:
  bool adds_at_once() const;
  void part_of_products(const Worker& worker, std::span<const Product> list, const QuantRows& x,
                        const float* xf, uint32_t rows, uint64_t begin, uint64_t end) const;
  void add_rows(Worker& worker, uint32_t rows, const NormWeights& post_norm) const;

  const ModelConfig& config_;
  const KernelTable& kernels_;
  const StepBuffers& buffers_;
};

}  // namespace kvasir
