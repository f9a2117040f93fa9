#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/metadata.h"
#include "kernels/router.h"
#include "kernels/table.h"
#include "kvcache/kv_layout.h"
#include "models/rope_frequencies.h"

namespace kvasir {

enum class NormKind : uint8_t {
  kRms,    // x / rms(x) * w
  kLayer,  // (x - mean(x)) / deviation(x) * w + b, the bias where the file has one
};

// What the two parts of a layer, attention and feed-forward, read.
enum class BlockInputs : uint8_t {
  kNormed,           // each the row as it stands, through a norm of its own
  kSharedNorm,       // both the same normed row (parallel blocks): their results are added together
  kMaybeSharedNorm,  // the first of these where a layer has an ffn_norm, else the second
  kPlain,            // each the row as it stands, without a norm
};

// Norms of q and k before RoPE.
enum class HeadNorm : uint8_t {
  kNone,
  kSharedWeights,    // of each head, all by the same weights
  kMaybeOwnWeights,  // of each head by weights of its own, where the file has them
  kWholeRow,         // of all heads of a row together
};

// Multi-head latent attention (DeepSeek-V2, arXiv 2405.04434, section 2.1), computed in its absorbed form: a
// token's cache row is its latent, normed, and one rotated key (ModelConfig::rope_dim) for all heads.
struct MlaConfig {
  uint32_t latent = 0;     // of K and V; a cache row's first values
  uint32_t query = 0;      // of queries; 0: they are not compressed
  uint32_t nope_dim = 0;   // of a query head's part without positions
  uint32_t value_dim = 0;  // of a head's result
};

enum class LayerRope : uint8_t { kGlobal, kLocal, kNone };

// Layers with experts: those from `leading_dense_layers` on, where router.experts is not 0.
struct MixtureShape {
  RouterShape router;
  uint32_t ffn_dim = 0;               // of an expert that the router chooses
  uint32_t shared_ffn_dim = 0;        // of the experts that every row passes through together; 0: none
  uint32_t leading_dense_layers = 0;  // with an ordinary feed-forward part
};

// What a model computes, as properties of its mathematics; read from GGUF metadata by the architecture's
// reader and checked there: every count is positive and bounded, heads divide as attention needs, widths are
// multiples of 32. Optional parts (biases, an own output head) are not flags: they exist when their tensors
// do. Nor are fused matrices: they are taken apart at load.
struct ModelConfig {
  std::string architecture;  // general.architecture, for display only
  std::string name;          // general.name, for display only
  uint32_t vocab_size = 0;   // tokens, each with a row of the embedding; filled at load
  uint32_t hidden_dim = 0;
  uint32_t ffn_dim = 0;  // of layers without experts
  uint32_t layers = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;        // of K; with MLA of a cache row, latent and rotated key, under one KV head
  uint32_t context_length = 0;  // trained context

  NormKind norm = NormKind::kRms;
  float norm_eps = 1e-5f;
  BlockInputs block_inputs = BlockInputs::kNormed;
  const char* ffn_norm = "ffn_norm";  // the tensor of the feed-forward part's own norm
  bool branch_norms = false;          // of what a part computed, before it is added to the row
  HeadNorm head_norm = HeadNorm::kNone;

  float embedding_scale = 1.0f;
  float residual_scale = 1.0f;     // of what a part computed, before it is added to the row
  float attention_scale = 0.0f;    // multiplies q.k
  bool attention_sinks = false;    // a score per head that no position has takes its part of the softmax
  float attention_softcap = 0.0f;  // scores = cap * tanh(scores / cap); 0: none
  float logit_scale = 1.0f;        // multiplies logits
  float final_softcap = 0.0f;      // logits = cap * tanh(logits / cap); 0: none
  Activation activation = Activation::kSilu;
  bool gated = true;  // feed-forward parts have a gate; else act(up(x)) is multiplied by up(x) itself
  MixtureShape mixture;

  RopeKind rope_kind = RopeKind::kNorm;
  uint32_t rope_dim = 0;  // values rotated per head
  double rope_base = 10000.0;
  RopeScaling rope_scaling;
  double rope_base_local = 10000.0;  // of layers with LayerRope::kLocal; never scaled

  // Per layer. Windows: 0 sees everything, else so many positions.
  std::vector<uint32_t> windows;
  std::vector<LayerRope> ropes;

  std::optional<MlaConfig> mla;

  uint64_t parameter_count = 0;  // of all tensors, filled at load

  uint32_t q_dim() const { return heads * head_dim; }  // with MLA of absorbed queries
  uint32_t kv_dim() const { return kv_heads * head_dim; }
  // Values of V under attention, and of all heads' results as the output matrix reads them.
  uint32_t value_dim() const { return mla ? mla->latent : head_dim; }
  uint32_t attn_dim() const { return heads * (mla ? mla->value_dim : head_dim); }
  // Of queries as the weights give them.
  uint32_t raw_q_dim() const { return mla ? heads * (mla->nope_dim + rope_dim) : q_dim(); }
  bool has_local_rope() const;
  bool has_experts(uint32_t layer) const {
    return mixture.router.experts > 0 && layer >= mixture.leading_dense_layers;
  }
  uint32_t layers_with_experts() const {
    return mixture.router.experts > 0 ? layers - mixture.leading_dense_layers : 0;
  }
  // The widest feed-forward part that every row passes through; 0: there is none.
  uint32_t widest_ffn() const;
  std::vector<KvLayerSpec> kv_layers() const;
};

// One row of the list of architectures: GGUF's name and the function that reads its hyper-parameters.
struct ArchSpec {
  const char* name;
  Result<ModelConfig> (*read_config)(const GgufMetadata& metadata);
  bool experts = false;  // whether its files may have them
};

// Every architecture we run, and the row of a name (kUnsupported lists the names we have).
std::span<const ArchSpec> architectures();
Result<const ArchSpec*> find_architecture(const std::string& name);

// The configuration that a file's metadata describes. Errors name the key and the number; experts of an
// architecture that has none here are kUnsupported.
Result<ModelConfig> read_model_config(const GgufMetadata& metadata);

}  // namespace kvasir
