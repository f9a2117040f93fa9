#pragma once

#include <string>

#include "base/result.h"
#include "models/causal_lm.h"
#include "models/medusa_heads.h"

namespace kvasir {

// Medusa heads from a safetensors file, for a target of the same width, in the layout that vLLM reads:
//   blocks.I.layers.J.weight (width, width), .bias (width) or none
//   lm_heads.I.weight (tokens, width), or one lm_head.weight for all; absent: the target's own rows. Where
//            config.json beside the file sets original_lm_head, lm_heads.0.weight may stand for
//            lm_head.weight
//   token_map (tokens), target ids of those rows, or which of the rows of all tokens are taken; absent: every
//            token
// or the authors' own names, I.J.linear.weight and I.LAYERS.weight; all perhaps behind "medusa_heads.".
// `path` may be a folder with model.safetensors or medusa_lm_head.safetensors. Of heads without a list of
// tokens only the first `frequent` (0: all) of the target's rows are used. Errors name the file, the tensor
// and the numbers.
Result<MedusaWeights> load_medusa(const std::string& path, const CausalLm& target, uint32_t frequent);

}  // namespace kvasir
