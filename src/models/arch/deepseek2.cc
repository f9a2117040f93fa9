#include "models/arch/arch.h"

namespace kvasir {

// DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437) and what converters write as them (Moonlight, Youtu-LLM,
// Kanana-2): multi-head latent attention that rotates neighbouring pairs.
Result<ModelConfig> read_deepseek2_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_mla_config(metadata, "deepseek2"));
  c.rope_kind = RopeKind::kNorm;
  return c;
}

}  // namespace kvasir
