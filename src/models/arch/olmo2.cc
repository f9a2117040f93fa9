#include "models/arch/arch.h"

namespace kvasir {

// OLMo 2 (arXiv 2501.00656): norms of whole rows of q and k, and of what each part computed; none of what it
// reads. OLMo 3 has a window in three layers of four, whose RoPE is not scaled.
Result<ModelConfig> read_olmo2_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "olmo2"));
  c.rope_kind = RopeKind::kNeox;
  c.block_inputs = BlockInputs::kPlain;
  c.branch_norms = true;
  c.head_norm = HeadNorm::kWholeRow;
  KVASIR_ASSIGN_OR_RETURN(const auto windowed, read_windows(metadata, "olmo2", 0, 4, c));
  KVASIR_ASSIGN_OR_RETURN(c.rope_base_local, positive_or(metadata, "olmo2.rope.freq_base_swa", c.rope_base));
  for (uint32_t l = 0; l < c.layers; ++l)
    if (windowed[l]) c.ropes[l] = LayerRope::kLocal;
  return c;
}

}  // namespace kvasir
