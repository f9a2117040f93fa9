#include "models/arch/arch.h"

namespace kvasir {

// OLMoE (arXiv 2409.02060): as Llama with half-split RoPE, norms of whole rows of q and k, and experts.
Result<ModelConfig> read_olmoe_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "olmoe"));
  c.rope_kind = RopeKind::kNeox;
  c.head_norm = HeadNorm::kWholeRow;
  KVASIR_RETURN_IF_ERROR(require_mixture(metadata, c));
  return c;
}

}  // namespace kvasir
