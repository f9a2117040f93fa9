#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "gguf/metadata.h"
#include "kernels/table.h"
#include "kvcache/kv_layout.h"

namespace kvasir {

// What a model computes, as properties of its mathematics; read from GGUF metadata by the architecture's
// reader and checked there: every count is positive and bounded, heads divide as attention needs, widths are
// multiples of 32. Optional parts (biases, q/k norms, norms after a branch, an own output head) are not
// flags: they exist when their tensors do.
struct ModelConfig {
  std::string architecture;  // general.architecture, for display only
  std::string name;          // general.name, for display only
  uint32_t vocab_size = 0;   // tokens, each with a row of the embedding; filled at load
  uint32_t hidden_dim = 0;
  uint32_t ffn_dim = 0;
  uint32_t layers = 0;
  uint32_t heads = 0;
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t context_length = 0;  // trained context

  float norm_eps = 1e-5f;
  float embedding_scale = 1.0f;
  float attention_scale = 0.0f;  // multiplies q.k
  float final_softcap = 0.0f;    // logits = cap * tanh(logits / cap); 0: none
  Activation activation = Activation::kSilu;

  RopeKind rope_kind = RopeKind::kNorm;
  uint32_t rope_dim = 0;  // values rotated per head
  double rope_base = 10000.0;
  double rope_linear_factor = 1.0;   // positions are divided by it
  double rope_base_local = 10000.0;  // of sliding-window layers when local_rope is set; never scaled
  bool local_rope = false;

  // Per layer: 0 sees everything, else the window in positions.
  std::vector<uint32_t> windows;

  uint64_t parameter_count = 0;  // of all tensors, filled at load

  uint32_t q_dim() const { return heads * head_dim; }
  uint32_t kv_dim() const { return kv_heads * head_dim; }
  std::vector<KvLayerSpec> kv_layers() const;
};

// One row of the list of architectures: GGUF's name and the function that reads its hyper-parameters.
struct ArchSpec {
  const char* name;
  Result<ModelConfig> (*read_config)(const GgufMetadata& metadata);
};

// Every architecture we run, and the row of a name (kUnsupported lists the names we have).
std::span<const ArchSpec> architectures();
Result<const ArchSpec*> find_architecture(const std::string& name);

// The configuration that a file's metadata describes. Errors name the key and the number.
Result<ModelConfig> read_model_config(const GgufMetadata& metadata);

}  // namespace kvasir
