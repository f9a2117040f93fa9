#include "models/arch/arch.h"

namespace kvasir {

// Qwen1.5-MoE, Qwen2-57B-A14B (arXiv 2407.10671): as Qwen2, with experts, and one that every row passes
// through behind a gate of its own.
Result<ModelConfig> read_qwen2moe_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "qwen2moe"));
  c.rope_kind = RopeKind::kNeox;
  KVASIR_RETURN_IF_ERROR(require_mixture(metadata, c, c.ffn_dim));
  return c;
}

}  // namespace kvasir
