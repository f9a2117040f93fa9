#include "models/arch/arch.h"

namespace kvasir {

// PLM (arXiv 2503.12167): multi-head latent attention, and a feed-forward part without a gate whose
// activation is the square of ReLU.
Result<ModelConfig> read_plm_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_mla_config(metadata, "plm"));
  c.rope_kind = RopeKind::kNorm;
  c.activation = Activation::kRelu;
  c.gated = false;
  return c;
}

}  // namespace kvasir
