#include "models/arch/arch.h"

namespace kvasir {

// SmolLM3: as Llama, without RoPE in every fourth layer. No key says so.
Result<ModelConfig> read_smollm3_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "smollm3"));
  c.rope_kind = RopeKind::kNorm;
  constexpr uint32_t kPeriod = 4;
  for (uint32_t l = kPeriod - 1; l < c.layers; l += kPeriod) c.ropes[l] = LayerRope::kNone;
  return c;
}

}  // namespace kvasir
