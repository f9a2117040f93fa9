#pragma once

#include <cstdint>

#include "base/result.h"
#include "gguf/gguf_file.h"
#include "models/model_config.h"
#include "models/weights.h"

namespace kvasir {

// How much weight a forward pass has to read and multiply; what predictions of its speed start from. Bytes
// are those of the packed matrices in memory, padding included; the f32 vectors (norms, biases) are left out,
// less than a thousandth of it.
struct WeightSizes {
  uint64_t layer_bytes = 0;          // all matrices of all layers: read once per step
  uint64_t head_bytes = 0;           // the output head: read once per step that wants logits
  uint64_t embedding_row_bytes = 0;  // of one token's row: read once per row
  uint64_t layer_macs = 0;           // multiply-adds of one row through all layers' matrices: sum of n * k
  uint64_t head_macs = 0;            // of one row of logits
};

WeightSizes weight_sizes(const ModelWeights& weights);

// The same without reading any weight; fills config.vocab_size and config.parameter_count. Errors as of
// load_weights().
Result<WeightSizes> read_weight_sizes(const GgufFile& file, ModelConfig& config);

}  // namespace kvasir
