#include <cmath>

#include "models/arch/arch.h"

namespace kvasir {

// MiniCPM3 (OpenBMB): multi-head latent attention, and factors on embeddings, branches and logits that no key
// gives, because every model of the family has the same: 12, 1.4 / sqrt(layers) and 256 / width. Divisors of
// RoPE's frequencies come without the context that they end at, which is then the trained one.
Result<ModelConfig> read_minicpm3_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_mla_config(metadata, "minicpm3"));
  c.rope_kind = RopeKind::kNeox;
  c.embedding_scale = 12.0f;
  c.residual_scale = 1.4f / std::sqrt(static_cast<float>(c.layers));
  c.logit_scale = 256.0f / static_cast<float>(c.hidden_dim);
  if (c.rope_scaling.original_context == 0) c.rope_scaling.original_context = c.context_length;
  return c;
}

}  // namespace kvasir
