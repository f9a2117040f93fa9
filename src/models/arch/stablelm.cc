#include "models/arch/arch.h"

namespace kvasir {

// StableLM 1 and 2 (arXiv 2402.17834): LayerNorm with biases, RoPE of a part of each head. The 12B model
// norms each head's q and k and computes attention and feed-forward side by side; that its layers have no
// ffn_norm is the only true sign of the latter, for converters write use_parallel_residual where nothing is
// said.
Result<ModelConfig> read_stablelm_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "stablelm", NormKind::kLayer));
  c.rope_kind = RopeKind::kNeox;
  c.block_inputs = BlockInputs::kMaybeSharedNorm;
  c.head_norm = HeadNorm::kMaybeOwnWeights;
  return c;
}

}  // namespace kvasir
