#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/aligned_buffer.h"
#include "base/result.h"
#include "base/thread_pool.h"
#include "gguf/gguf_file.h"
#include "kernels/matrix.h"
#include "models/model_config.h"

namespace kvasir {

// One decoder layer. Pointers to f32 vectors are null, and matrices not present(), where the file has no such
// tensor.
struct LayerWeights {
  const float* attn_norm = nullptr;       // (hidden)
  PackedMatrix q, k, v, o;                // (q_dim, hidden), (kv_dim, hidden) x2, (hidden, q_dim)
  const float* q_bias = nullptr;          // (q_dim)
  const float* k_bias = nullptr;          // (kv_dim)
  const float* v_bias = nullptr;          // (kv_dim)
  const float* o_bias = nullptr;          // (hidden)
  const float* q_norm = nullptr;          // (head_dim), per head, before RoPE
  const float* k_norm = nullptr;          // (head_dim)
  const float* post_attn_norm = nullptr;  // (hidden), of the branch before the residual addition
  const float* ffn_norm = nullptr;        // (hidden)
  PackedMatrix gate, up, down;            // (ffn, hidden) x2, (hidden, ffn)
  const float* post_ffn_norm = nullptr;   // (hidden)
};

// All weights of a model, packed into one allocation of our own.
struct ModelWeights {
  AlignedBuffer memory;
  // Token embeddings: rows in the file's own format, or (tied) read from the packed output head.
  TensorView embedding;
  bool tied = false;
  PackedMatrix head;                    // (vocab_size, hidden)
  const float* output_norm = nullptr;   // (hidden)
  const float* rope_factors = nullptr;  // (rope_dim / 2) divisors of the frequencies, or null
  std::vector<LayerWeights> layers;
};

// Packs every tensor of the file. Fills config.vocab_size and config.parameter_count. Shapes are checked
// against the configuration and every tensor of the file must be one that is used: errors name the tensor and
// the numbers. Of embedding and output head the rows that belong to a token are kept; fewer rows than tokens
// are an error. Pages of the file are released as they have been packed. progress(done, total) counts packed
// bytes.
Result<ModelWeights> load_weights(const GgufFile& file, ModelConfig& config, ThreadPool& pool,
                                  const std::function<void(uint64_t, uint64_t)>& progress);

// Bytes that load_weights() will allocate for this file, without reading any weight.
Result<uint64_t> packed_weight_bytes(const GgufFile& file, const ModelConfig& config);

}  // namespace kvasir
