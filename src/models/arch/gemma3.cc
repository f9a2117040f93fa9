#include <cmath>

#include "models/arch/arch.h"

namespace kvasir {

// Gemma 3 (text; arXiv 2503.19786): embeddings scaled by sqrt(width), GELU, norms on q and k and after each
// branch; some layers attend to everything with the long RoPE base, the others to a window with base 10000
// and no scaling. Files may lack the local base. No key tells how the 27B model scales its scores: it is
// known by its 62 layers. The converter has added 1 to the norm weights.
Result<ModelConfig> read_gemma3_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "gemma3"));
  c.rope_kind = RopeKind::kNeox;
  c.activation = Activation::kGeluTanh;
  c.embedding_scale = std::sqrt(static_cast<float>(c.hidden_dim));
  c.branch_norms = true;
  c.head_norm = HeadNorm::kSharedWeights;
  constexpr uint32_t kLayersOf27B = 62;
  if (c.layers == kLayersOf27B)
    c.attention_scale = 1.0f / std::sqrt(static_cast<float>(c.hidden_dim / c.heads));
  if (!metadata.contains("gemma3.rope.freq_base")) c.rope_base = 1e6;
  KVASIR_ASSIGN_OR_RETURN(c.rope_base_local, positive_or(metadata, "gemma3.rope.freq_base_swa", 10000.0));
  KVASIR_ASSIGN_OR_RETURN(c.final_softcap, softcap_or_none(metadata, "gemma3.final_logit_softcapping"));
  KVASIR_ASSIGN_OR_RETURN(const auto windowed, read_windows(metadata, "gemma3", 0, 6, c));
  for (uint32_t l = 0; l < c.layers; ++l)
    if (windowed[l]) c.ropes[l] = LayerRope::kLocal;
  return c;
}

}  // namespace kvasir
