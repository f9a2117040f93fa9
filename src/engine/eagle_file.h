#pragma once

#include <string>

#include "base/result.h"
#include "models/causal_lm.h"
#include "models/eagle_layer.h"

namespace kvasir {

// An EAGLE-1 or EAGLE-3 head for a target of the same width, from a safetensors file under the names that
// vLLM reads, or from a GGUF file of architecture eagle3 (HeadFile says which names it has):
//   EAGLE-1  fc.weight (width, 2 width), layers.0.* of a Llama layer without input_layernorm
//   EAGLE-3  fc.weight (width, n width) for n layers, midlayer.* or layers.0.* with input_layernorm and
//            hidden_norm, norm.weight, d2t (tokens; the target's id less the row's index); where the
//            configuration says so input_norm.weight (norm_before_fc), fc_norm.I.weight (fc_norm),
//            norm_before_residual, norm_output
//   both     lm_head.weight (tokens, width), absent: the target's own rows; embed_tokens.weight, of which the
//            target's rows take the place where they are the same but for rounding; biases, q_norm and k_norm
//            of attention
// Numbers that no shape tells (head_dim, rope_theta, rms_norm_eps, eagle_aux_hidden_state_layer_ids, ...)
// come from config.json beside the file (HeadConfig says what it leaves out means) or the file's metadata,
// else they are the target's. `path` may be a folder with model.safetensors. Of heads without a list of
// tokens only the first `frequent` (0: all) are used. kUnsupported names what heads of this kind have that is
// not computed here: several layers, another width than the target's, parallel drafting (mask_hidden), an
// activation other than SiLU, partial RoPE. Errors name the file, the tensor and the numbers.
Result<EagleWeights> load_eagle(const std::string& path, const CausalLm& target, uint32_t frequent);

}  // namespace kvasir
