#pragma once

#include "models/tensor_binder.h"
#include "models/weights.h"

namespace kvasir {

// Asks `binder` for every tensor that the configuration calls for and writes where they are. Fills
// config.vocab_size. What went wrong is in binder.status().
void bind_model(TensorBinder& binder, ModelConfig& config, ModelWeights& weights);

}  // namespace kvasir
