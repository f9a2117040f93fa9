#include "models/arch/arch.h"

namespace kvasir {

// Qwen3-30B-A3B, Qwen3-235B-A22B (arXiv 2505.09388): as Qwen3, with experts.
Result<ModelConfig> read_qwen3moe_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "qwen3moe"));
  c.rope_kind = RopeKind::kNeox;
  c.head_norm = HeadNorm::kSharedWeights;
  c.mixture.router.normalised = true;
  KVASIR_RETURN_IF_ERROR(require_mixture(metadata, c));
  return c;
}

}  // namespace kvasir
