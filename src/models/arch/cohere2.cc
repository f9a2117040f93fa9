#include "models/arch/arch.h"

namespace kvasir {

// Command R7B, Command A, Aya Expanse 2 (Cohere): as Command R, with a window and RoPE in three layers of
// four, neither in the fourth.
Result<ModelConfig> read_cohere2_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "cohere2", NormKind::kLayer));
  c.rope_kind = RopeKind::kNorm;
  c.block_inputs = BlockInputs::kSharedNorm;
  KVASIR_ASSIGN_OR_RETURN(const double scale, positive_or(metadata, "cohere2.logit_scale", 1.0));
  c.logit_scale = static_cast<float>(scale);
  KVASIR_ASSIGN_OR_RETURN(const auto windowed, read_windows(metadata, "cohere2", 0, 4, c));
  for (uint32_t l = 0; l < c.layers; ++l)
    if (!windowed[l]) c.ropes[l] = LayerRope::kNone;
  return c;
}

}  // namespace kvasir
