#include "models/arch/arch.h"

namespace kvasir {

// Phi-3, Phi-3.5, Phi-4 and Phi-4-mini (arXiv 2404.14219): fused q, k and v and fused gate and up; RoPE of a
// part of each head, with divisors for short and for long contexts (rope_factors_*.weight). A window that the
// file names is that of every layer, as in transformers.
Result<ModelConfig> read_phi3_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "phi3"));
  c.rope_kind = RopeKind::kNeox;
  KVASIR_RETURN_IF_ERROR(read_windows(metadata, "phi3", 0, 0, c).status());
  return c;
}

}  // namespace kvasir
