#pragma once

#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "base/result.h"
#include "gguf/gguf_file.h"
#include "models/model_config.h"
#include "models/weights.h"

namespace kvasir {

// How much weight a forward pass has to read and multiply; what predictions of its speed start from. Bytes
// are those of the packed matrices in memory, padding included; the f32 vectors (norms, biases) are left out,
// less than a thousandth of it.
struct WeightSizes {
  // A shape of matrix and how many of it the layers have. Those of a phase run without a barrier in between.
  enum class Phase : uint8_t { kQkv, kAttnOut, kRouter, kGateUp, kDown };
  struct Matrices {
    Phase phase = Phase::kQkv;
    DType type = DType::kF32;
    uint32_t n = 0, k = 0;  // outputs, inputs
    uint32_t count = 0;
    uint64_t bytes = 0;  // of one
    // Of experts: `count` is that of the layers, each of which has so many of this shape; a row uses `used`.
    uint32_t experts = 0;
    uint32_t used = 0;
  };

  uint64_t layer_bytes = 0;             // all matrices of all layers but experts: read once per step
  uint64_t expert_bytes = 0;            // all experts of all layers: a step reads those that some row chose
  uint64_t active_expert_bytes = 0;     // of them, those that one row passes through
  uint64_t head_bytes = 0;              // the output head: read once per step that wants logits
  uint64_t embedding_row_bytes = 0;     // of one token's row: read once per row
  uint64_t layer_macs = 0;              // multiply-adds of one row through all layers: sum of n * k
  uint64_t last_macs = 0;               // of layer_macs, those behind the last layer's K and V (LastRows)
  uint64_t head_macs = 0;               // of one row of logits
  std::vector<Matrices> matrices = {};  // of the layers; their bytes add up to those above
  DType head_type = DType::kF32;
  uint32_t head_n = 0, head_k = 0;
  DType embedding_type = DType::kF32;
  bool embedding_packed = false;  // tied: rows are taken out of the head's panels
  uint32_t shared_inputs = 0;     // layers whose two parts read the same normed row,
  uint32_t head_norms = 0;        // layers that norm each head's q and k,
  uint32_t branch_norms = 0;      // and norms of a branch before it is added

  // What a model's steps read in the end: all layers, all experts, and the head.
  uint64_t working_set() const { return layer_bytes + expert_bytes + head_bytes; }

  // Formats of the matrices, the head's included, each once.
  std::vector<DType> formats() const;
};

WeightSizes weight_sizes(const ModelWeights& weights, const ModelConfig& config);

// The same without reading any weight; fills config.vocab_size and config.parameter_count. Errors as of
// load_weights().
Result<WeightSizes> read_weight_sizes(const GgufFile& file, ModelConfig& config);

}  // namespace kvasir
