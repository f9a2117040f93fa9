#include <cmath>

#include "models/arch/arch.h"

namespace kvasir {

// Gemma 2 (arXiv 2408.00118): as Gemma, with norms after each branch, caps on scores and logits, and a window
// in every other layer, the first one too. No key tells how the 27B model scales its scores: it is known by
// its 46 layers, as every GGUF engine does.
Result<ModelConfig> read_gemma2_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "gemma2"));
  c.rope_kind = RopeKind::kNeox;
  c.activation = Activation::kGeluTanh;
  c.embedding_scale = std::sqrt(static_cast<float>(c.hidden_dim));
  c.branch_norms = true;
  constexpr uint32_t kLayersOf27B = 46;
  if (c.layers == kLayersOf27B)
    c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.hidden_dim / c.heads));
  KVASIR_ASSIGN_OR_RETURN(c.attention_softcap, softcap_or_none(metadata, "gemma2.attn_logit_softcapping"));
  KVASIR_ASSIGN_OR_RETURN(c.final_softcap, softcap_or_none(metadata, "gemma2.final_logit_softcapping"));
  KVASIR_RETURN_IF_ERROR(read_windows(metadata, "gemma2", 4096, 2, c).status());
  return c;
}

}  // namespace kvasir
