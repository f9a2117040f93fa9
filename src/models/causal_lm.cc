#include "models/causal_lm.h"

#include "models/transformer.h"

namespace kvasir {

Result<std::unique_ptr<CausalLm>> CausalLm::load(const GgufFile& file, const KernelTable& kernels,
                                                 ThreadPool& pool, const Limits& limits,
                                                 const Progress& progress) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig config, read_model_config(file.metadata()));
  KVASIR_ASSIGN_OR_RETURN(ModelWeights weights, load_weights(file, config, pool, progress));
  return std::unique_ptr<CausalLm>(
      std::make_unique<Transformer>(std::move(config), std::move(weights), kernels, pool, limits));
}

}  // namespace kvasir
