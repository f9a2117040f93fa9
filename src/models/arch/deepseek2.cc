#include <fmt/core.h>

#include <string>

#include "models/arch/arch.h"

namespace kvasir {

// DeepSeek-V2 and V3 (arXiv 2405.04434, 2412.19437) and what converters write as them (Moonlight, Kanana-2,
// Youtu-LLM without experts): multi-head latent attention that rotates neighbouring pairs, and behind a few
// dense layers experts. Files of V2 do not say how their router scores: by softmax, not normalised. Mistral
// Large 3 is written as one too, with queries that grow with the position.
Result<ModelConfig> read_deepseek2_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_mla_config(metadata, "deepseek2"));
  c.rope_kind = RopeKind::kNorm;
  const std::string growing = "deepseek2.attention.temperature_scale";
  KVASIR_ASSIGN_OR_RETURN(const auto scale, metadata.get_float(growing));
  if (scale.value_or(0) != 0)
    return unsupported(
        fmt::format("{} is {}: queries that grow with the position are not supported", growing, *scale));
  KVASIR_RETURN_IF_ERROR(read_mixture(metadata, c));
  return c;
}

}  // namespace kvasir
