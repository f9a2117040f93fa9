#include "models/arch/arch.h"

namespace kvasir {

// DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437) and what converters write as them (Moonlight, Kanana-2,
// Youtu-LLM without experts): multi-head latent attention that rotates neighbouring pairs, and behind a few
// dense layers experts. Files of V2 do not say how their router scores: by softmax, not normalised.
Result<ModelConfig> read_deepseek2_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_mla_config(metadata, "deepseek2"));
  c.rope_kind = RopeKind::kNorm;
  KVASIR_RETURN_IF_ERROR(read_mixture(metadata, c));
  return c;
}

}  // namespace kvasir
