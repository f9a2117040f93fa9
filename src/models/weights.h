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

// A norm of rows, as ModelConfig::norm says; not present() where the layer has none.
struct NormWeights {
  const float* weight = nullptr;
  const float* bias = nullptr;  // of layer norms, may be null

  bool present() const { return weight != nullptr; }
};

// down(act(gate(x)) * up(x)): (ffn, hidden) twice, (hidden, ffn), and their biases. Without a gate that is
// not present().
struct FeedForwardWeights {
  PackedMatrix gate, up, down;
  const float* gate_bias = nullptr;
  const float* up_bias = nullptr;
  const float* down_bias = nullptr;
};

// A matrix of every expert of a layer, one behind the other.
struct ExpertMatrix {
  PackedMatrix all;
  uint32_t n = 0;       // outputs of one, a multiple of kPanelCols
  uint32_t stride = 0;  // panels from an expert to the next
  uint32_t first = 0;   // panels of an expert before this matrix, where two of them are fused
  const float* bias = nullptr;

  PackedMatrix of(uint32_t expert) const {
    const uint32_t panel = expert * stride + first;
    return all.part(panel, panel + n / kPanelCols);
  }
  const float* bias_of(uint32_t expert) const {
    return bias == nullptr ? nullptr : bias + (size_t{expert} * stride + first) * kPanelCols;
  }
};

// A feed-forward part with experts (models/mixture_feed_forward.h).
struct MixtureWeights {
  PackedMatrix router;                    // (experts, hidden)
  const float* router_bias = nullptr;     // (experts)
  const float* selection_bias = nullptr;  // (experts), for the choice alone
  ExpertMatrix gate, up, down;            // of each expert as FeedForwardWeights
  FeedForwardWeights shared;              // of all rows; not present() where there is none
  PackedMatrix shared_router;             // (1, hidden): a sigmoid of it multiplies what `shared` computes

  bool present() const { return router.present(); }
};

// What multi-head latent attention has beside q and o: rows of the latent and the rotated key, the latent's
// norm, and each head's way into the space of latents and out of it. LayerWeights::q reads the queries'
// latent where they are compressed.
struct MlaWeights {
  PackedMatrix q_a;                  // (query, hidden), not present() where queries are not compressed
  const float* q_a_norm = nullptr;   // (query)
  PackedMatrix kv_a;                 // (latent + rope_dim, hidden)
  const float* kv_a_norm = nullptr;  // (latent)
  std::vector<PackedMatrix> k_b;     // [heads] (latent, nope_dim): the keys' matrix, transposed
  std::vector<PackedMatrix> v_b;     // [heads] (value_dim, latent)
};

// One decoder layer. Pointers to f32 vectors are null, and norms not present(), where the file has no such
// tensor.
struct LayerWeights {
  NormWeights attn_norm;          // (hidden)
  PackedMatrix q, k, v, o;        // (raw_q_dim, hidden), (kv_dim, hidden) x2, (hidden, attn_dim)
  const float* q_bias = nullptr;  // (q_dim)
  const float* k_bias = nullptr;  // (kv_dim)
  const float* v_bias = nullptr;  // (kv_dim)
  const float* o_bias = nullptr;  // (hidden)
  const float* q_norm = nullptr;  // (head_dim), or (q_dim) where heads have weights of their own
  const float* k_norm = nullptr;  // (head_dim), or (kv_dim)
  MlaWeights mla;                 // in place of k and v, where the model has it
  NormWeights post_attn_norm;     // (hidden), of what attention computed, before it is added to the row
  const float* sinks = nullptr;   // (heads)
  NormWeights ffn_norm;           // (hidden)
  FeedForwardWeights ffn;         // of a layer without experts,
  MixtureWeights mixture;         // or of one with experts
  NormWeights post_ffn_norm;      // (hidden)
};

// All weights of a model, packed into one allocation of our own.
struct ModelWeights {
  AlignedBuffer memory;
  // Token embeddings: rows in the file's own format, or (tied) read from the packed output head.
  TensorView embedding;
  bool tied = false;
  PackedMatrix head;        // (vocab_size, hidden)
  NormWeights output_norm;  // (hidden)
  // Divisors of the rotated pairs' frequencies, (rope_dim / 2), or null: for every context, or one set for
  // contexts within RopeScaling::original_context and one for longer ones.
  const float* rope_factors = nullptr;
  const float* rope_factors_short = nullptr;
  const float* rope_factors_long = nullptr;
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
