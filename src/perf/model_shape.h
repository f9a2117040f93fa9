#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/gguf_file.h"
#include "perf/weight_format.h"

namespace kvasir {

// How K and V heads relate to query heads. MHA: one KV head each (Vaswani et al. 2017); MQA: one for all
// (Shazeer 2019); GQA: one per group (Ainslie et al. 2023); MLA: one compressed row per token for all heads
// (DeepSeek-V2, arXiv 2405.04434).
enum class AttentionKind { kMha, kGqa, kMqa, kMla };
std::string_view attention_kind_name(AttentionKind kind);  // "MHA", "GQA", "MQA", "MLA"

// The dimensions of a transformer, as far as arithmetic about it needs them; no weights. Symbols in brackets
// are those of the formulas (perf/formulas.h), which follow the book "How to Scale Your Model" (Austin et al.
// 2025, https://jax-ml.github.io/scaling-book). It describes any model, not only those that the engine runs.
struct ModelShape {
  // Multi-head latent attention. A token's cache row is kv_lora_rank + qk_rope_head_dim numbers per layer.
  struct Mla {
    uint32_t kv_lora_rank = 0;      // [R_kv]
    uint32_t qk_rope_head_dim = 0;  // [R_rope] of the one key part that carries positions
    uint32_t qk_nope_head_dim = 0;  // [H_nope] of a head's other part
    uint32_t v_head_dim = 0;        // [H_v]
    uint32_t q_lora_rank = 0;       // 0: queries are not compressed
  };
  // Mixture of experts: every layer from leading_dense_layers on.
  struct Moe {
    uint32_t experts = 0;               // [E] routed experts of a layer
    uint32_t experts_used = 0;          // [A] of them per token
    uint32_t shared_experts = 0;        // that every token uses
    uint32_t expert_ffn_dim = 0;        // [F_e] of a routed expert
    uint32_t shared_ffn_dim = 0;        // of the shared experts together
    uint32_t leading_dense_layers = 0;  // first layers with an ordinary feed-forward part
    bool selection_bias = false;        // a bias per expert, for the choice only (DeepSeek-V3)
    bool shared_gate = false;           // a gate of D weights on the shared experts (Qwen2-MoE)
    bool biases = false;                // of the router and of every expert's matrices (gpt-oss)
  };

  std::string name;
  std::string architecture;  // GGUF's general.architecture or Hugging Face's model_type
  std::string source;        // the file, or where a table row's numbers come from
  uint32_t vocab = 0;        // [V]
  uint32_t hidden = 0;       // [D]
  uint32_t ffn = 0;          // [F] of the dense feed-forward part; 0 when every layer has experts
  uint32_t layers = 0;       // [L]
  uint32_t heads = 0;        // [N] query heads
  uint32_t kv_heads = 0;     // [K]
  uint32_t head_dim = 0;     // [H] of queries and keys, and of values where it is not MLA
  bool tied_embeddings = false;
  std::vector<uint32_t> windows;  // per layer: 0 sees everything, else the last so many positions
  std::optional<Mla> mla;
  std::optional<Moe> moe;
  uint32_t max_context = 0;   // 0: not said
  uint32_t ffn_matrices = 3;  // gate, up and down; 2 without a gate
  // What exact counts need beside the matrices.
  uint32_t norms_per_layer = 2;  // of D values each
  uint32_t qk_norm = 0;          // values of the norms of q and of k in a layer
  bool norm_bias = false;        // every norm of D values has a bias
  bool qkv_bias = false;
  bool output_bias = false;
  bool attention_sinks = false;  // a score per head
  bool ffn_bias = false;         // of gate, up and down
  WeightFormat weights;          // as the source stores them
  // Of a file's tensor directory, exact; absent for a config or a table row.
  std::optional<uint64_t> stored_parameters;
  std::optional<uint64_t> stored_bytes;
  std::optional<uint64_t> stored_expert_bytes;     // of them, those of routed experts,
  std::optional<uint64_t> stored_embedding_bytes;  // and of the embedding

  AttentionKind attention() const;
  bool is_moe_layer(uint32_t layer) const { return moe && layer >= moe->leading_dense_layers; }
  uint32_t moe_layers() const { return moe ? layers - moe->leading_dense_layers : 0; }
  uint32_t dense_layers() const { return layers - moe_layers(); }
  uint32_t windowed_layers() const;
};

// kCorrupt, naming the number, unless every count is positive and bounded, K divides N, there is a window
// entry per layer, and at most as many experts are used as there are.
Status check_shape(const ModelShape& shape);

// From the header of an opened GGUF file of any architecture: the keys `<arch>.block_count`,
// `<arch>.attention.kv_lora_rank` and so on as ggml's docs/gguf.md names them, and the tensor directory for
// what keys do not say (tied embeddings, biases, norms) and for the exact bytes. No weight is read. Errors
// name the key and the number.
Result<ModelShape> shape_from_gguf(const GgufFile& file);

// Whether a GGUF file's tensor of that name holds experts that a router chooses from: of all together, or of
// one ("blk.0.ffn_up.3.weight").
bool holds_routed_experts(std::string_view tensor);

// From a Hugging Face config.json: llama, mistral, mixtral, qwen2, qwen2_moe, qwen3, qwen3_moe, gemma,
// gemma2, gemma3 and gemma3_text, phi3, olmoe, granitemoe, granitemoeshared, gpt_oss, deepseek_v2,
// deepseek_v3, minicpm3, plm. Fields that a config leaves out take the defaults of transformers'
// configuration class. `name` is what to call it. kUnsupported lists the types we know.
Result<ModelShape> shape_from_config(std::string_view json, std::string name);

// From the table data/models.json, built into the program. Case and punctuation do not matter ("llama-2 7B"
// is "Llama 2 7B"). kNotFound suggests the nearest names.
Result<ModelShape> shape_by_name(std::string_view name);
// The names of the table, in its order.
std::vector<std::string> known_shape_names();

// What a person names a model by: a GGUF file, a config.json, a folder that holds one, or a name of the
// table. Where it is a GGUF file, `file`, if given, is that file afterwards, for who wants to read on.
Result<ModelShape> resolve_shape(const std::string& text, std::optional<GgufFile>* file = nullptr);

}  // namespace kvasir
