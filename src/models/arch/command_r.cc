#include "models/arch/arch.h"

namespace kvasir {

// Command R, Aya 23 (Cohere): LayerNorm without biases, attention and feed-forward side by side, a factor on
// logits; Command R+ norms each head's q and k.
Result<ModelConfig> read_command_r_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "command-r", NormKind::kLayer));
  c.rope_kind = RopeKind::kNorm;
  c.block_inputs = BlockInputs::kSharedNorm;
  c.head_norm = HeadNorm::kMaybeOwnWeights;
  KVASIR_ASSIGN_OR_RETURN(const double scale, positive_or(metadata, "command-r.logit_scale", 1.0));
  c.logit_scale = static_cast<float>(scale);
  return c;
}

}  // namespace kvasir
