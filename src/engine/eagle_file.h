#pragma once

#include <string>

#include "base/result.h"
#include "models/causal_lm.h"
#include "models/eagle_layer.h"

namespace kvasir {

// An EAGLE-1 or EAGLE-3 head from a safetensors file, for a target of the same width, under the names that
// vLLM reads:
//   EAGLE-1  fc.weight (width, 2 width), layers.0.* of a Llama layer without input_layernorm
//   EAGLE-3  fc.weight (width, 3 width), midlayer.* with input_layernorm and hidden_norm, norm.weight,
//            d2t (tokens; the target's id less the row's index)
//   both     lm_head.weight (tokens, width), absent: the target's own rows; embed_tokens is not read: the
//            target's stand for it
// Numbers that no shape tells (head_dim, rope_theta, rms_norm_eps, eagle_aux_hidden_state_layer_ids, ...)
// come from config.json beside the file or the file's metadata, else they are the target's. `path` may be a
// folder with model.safetensors. Of heads without a list of tokens only the first `frequent` (0: all) are
// used. Errors name the file, the tensor and the numbers.
Result<EagleWeights> load_eagle(const std::string& path, const CausalLm& target, uint32_t frequent);

}  // namespace kvasir
