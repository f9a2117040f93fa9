#include "models/arch/arch.h"

namespace kvasir {

// Llama 1 to 3, SmolLM2, Mistral, Mixtral (arXiv 2401.04088), TinyLlama: converters permute q and k rows so
// that RoPE rotates neighbouring pairs, and write Llama 3's scaling of RoPE as divisors, rope_freqs.weight. A
// sliding window in the metadata of Mistral 7B v0.1 is ignored, as every GGUF engine does.
Result<ModelConfig> read_llama_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "llama"));
  c.rope_kind = RopeKind::kNorm;
  c.mixture.router.normalised = true;
  KVASIR_RETURN_IF_ERROR(read_mixture(metadata, c));
  return c;
}

}  // namespace kvasir
