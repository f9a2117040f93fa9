#include "models/arch/arch.h"

namespace kvasir {

// Granite 3 (IBM): as Llama, with factors on embeddings, branches, scores and (a divisor) logits.
Result<ModelConfig> read_granite_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "granite"));
  c.rope_kind = RopeKind::kNorm;
  const auto factor = [&](const char* key, float fallback) -> Result<float> {
    KVASIR_ASSIGN_OR_RETURN(const double value, positive_or(metadata, key, fallback));
    return static_cast<float>(value);
  };
  KVASIR_ASSIGN_OR_RETURN(c.embedding_scale, factor("granite.embedding_scale", 1.0f));
  KVASIR_ASSIGN_OR_RETURN(c.residual_scale, factor("granite.residual_scale", 1.0f));
  KVASIR_ASSIGN_OR_RETURN(c.attention_scale, factor("granite.attention.scale", c.attention_scale));
  KVASIR_ASSIGN_OR_RETURN(const float divisor, factor("granite.logit_scale", 1.0f));
  c.logit_scale = 1.0f / divisor;
  return c;
}

}  // namespace kvasir
