#include <string>

#include "models/arch/arch.h"

namespace kvasir {
namespace {

// As Llama, with factors on embeddings, branches, scores and (a divisor) logits.
Result<ModelConfig> read_with_factors(const GgufMetadata& metadata, const std::string& arch) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, arch));
  c.rope_kind = RopeKind::kNorm;
  const auto factor = [&](const char* key, float fallback) -> Result<float> {
    KVASIR_ASSIGN_OR_RETURN(const double value, positive_or(metadata, arch + key, fallback));
    return static_cast<float>(value);
  };
  KVASIR_ASSIGN_OR_RETURN(c.embedding_scale, factor(".embedding_scale", 1.0f));
  KVASIR_ASSIGN_OR_RETURN(c.residual_scale, factor(".residual_scale", 1.0f));
  KVASIR_ASSIGN_OR_RETURN(c.attention_scale, factor(".attention.scale", c.attention_scale));
  KVASIR_ASSIGN_OR_RETURN(const float divisor, factor(".logit_scale", 1.0f));
  c.logit_scale = 1.0f / divisor;
  return c;
}

}  // namespace

// Granite 3 (IBM).
Result<ModelConfig> read_granite_config(const GgufMetadata& metadata) {
  return read_with_factors(metadata, "granite");
}

// Granite 3 MoE, and Granite 4 Tiny's kind of experts that every row passes through.
Result<ModelConfig> read_granitemoe_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_with_factors(metadata, "granitemoe"));
  c.mixture.router.normalised = true;
  KVASIR_RETURN_IF_ERROR(require_mixture(metadata, c));
  return c;
}

}  // namespace kvasir
