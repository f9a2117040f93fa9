#include <cmath>

#include "models/arch/arch.h"

namespace kvasir {

// Gemma (arXiv 2403.08295): embeddings scaled by sqrt(width), GELU. The converter has added 1 to the norm
// weights.
Result<ModelConfig> read_gemma_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "gemma"));
  c.rope_kind = RopeKind::kNeox;
  c.activation = Activation::kGeluTanh;
  c.embedding_scale = std::sqrt(static_cast<float>(c.hidden_dim));
  return c;
}

}  // namespace kvasir
