#include "models/arch/arch.h"

namespace kvasir {

// Qwen3 (arXiv 2505.09388): as Qwen2, with norms of each head's q and k in place of biases.
Result<ModelConfig> read_qwen3_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "qwen3"));
  c.rope_kind = RopeKind::kNeox;
  c.head_norm = HeadNorm::kSharedWeights;
  return c;
}

}  // namespace kvasir
