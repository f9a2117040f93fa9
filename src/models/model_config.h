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

// What a model computes, as properties of its mathematics; read from GGUF metadata by the architecture's reader and
// checked for consistency there.
struct ModelConfig {
  std::string architecture;  // general.architecture, for display only
  std::string name;          // general.name, for display only
  uint32_t vocab_size = 0;
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
  float final_softcap = 0.0f;    // 0: none
  Activation activation = Activation::kSilu;

  RopeKind rope_kind = RopeKind::kNorm;
  uint32_t rope_dim = 0;            // values rotated per head
  float rope_base = 10000.0f;
  float rope_linear_factor = 1.0f;  // positions are divided by it
  float rope_base_local = 10000.0f;  // of sliding-window layers, always unscaled

  // Per layer: 0 sees everything, else the window in positions. Sliding layers use rope_base_local when
  // local_rope is set.
  std::vector<uint32_t> windows;
  bool local_rope = false;

  std::vector<KvLayerSpec> kv_layers() const;
  uint64_t parameter_count = 0;  // of all tensors, filled at load
};

// One row of the list of architectures: GGUF's name and the function that reads its hyper-parameters.
struct ArchSpec {
  const char* name;
  Result<ModelConfig> (*read_config)(const GgufMetadata& metadata);
};

// Every architecture we run, and the row of a name (error lists the names).
std::span<const ArchSpec> architectures();
Result<const ArchSpec*> find_architecture(const std::string& name);

}  // namespace kvasir
