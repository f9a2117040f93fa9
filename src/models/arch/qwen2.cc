#include "models/arch/arch.h"

namespace kvasir {

// Qwen2 and Qwen2.5: biases on q, k and v, half-split RoPE.
Result<ModelConfig> read_qwen2_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "qwen2"));
  c.rope_kind = RopeKind::kNeox;
  return c;
}

}  // namespace kvasir
