#include "models/arch/arch.h"

namespace kvasir {

// gpt-oss (arXiv 2508.10925): sinks of attention, a window in every other layer, the first one too, experts
// with biases and a clamped activation. YaRN's ramp ends where it is computed to, between pairs. The norm
// that the feed-forward part reads through is named post_attention_norm.
Result<ModelConfig> read_gpt_oss_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "gpt-oss"));
  c.rope_kind = RopeKind::kNeox;
  c.rope_scaling.whole_pairs = false;
  c.attention_sinks = true;
  c.activation = Activation::kClampedSwiglu;
  c.ffn_norm = "post_attention_norm";
  c.mixture.router.normalised = true;
  KVASIR_RETURN_IF_ERROR(require_mixture(metadata, c));
  KVASIR_RETURN_IF_ERROR(read_windows(metadata, "gpt-oss", 0, 2, c).status());
  return c;
}

}  // namespace kvasir
