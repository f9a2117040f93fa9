#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "models/model_config.h"

namespace kvasir {

// Reads the keys that every decoder-only family shares (`<arch>.block_count`, `.embedding_length`, head
// counts and widths, norm epsilon, RoPE base and scaling, context length) and checks that they fit together.
// Errors name the key and the number. Families then set what is theirs. `norm` says which of the two epsilons
// is read.
Result<ModelConfig> read_common_config(const GgufMetadata& metadata, const std::string& arch,
                                       NormKind norm = NormKind::kRms);

// The same for a family with multi-head latent attention (models/model_config.h), whose head sizes are under
// `<arch>.attention.key_length_mla` and `.value_length_mla`, or in older files under `.key_length` and
// `.value_length`. YaRN scales scores as DeepSeek-V2's code does: cos and sin as they are, and scores times
// (1 + x ln(factor))^2 where x is `<arch>.rope.scaling.yarn_log_multiplier`, a tenth of mscale_all_dim.
Result<ModelConfig> read_mla_config(const GgufMetadata& metadata, const std::string& arch);

// An integer under `key`, within bounds; `fallback` where there is none.
Result<uint32_t> int_or(const GgufMetadata& metadata, const std::string& key, int64_t min, int64_t max,
                        uint32_t fallback);
// A positive, finite number under `<arch><suffix>`, e.g. ".logit_scale"; `fallback` where there is none.
Result<double> positive_or(const GgufMetadata& metadata, const std::string& key, double fallback);
// The cap under `key`: a number above 0, or 0 and absence for none.
Result<float> softcap_or_none(const GgufMetadata& metadata, const std::string& key);

// Gives the layers their windows: `<arch>.attention.sliding_window` positions (`window` where it is absent,
// 0: none) for those that `<arch>.attention.sliding_window_pattern` lists one by one, or for all but the last
// of every so many, as it says or else `period`; 1: none, 0: all. Returns which layers the file says have
// one; a window that the context cannot fill is kept as none.
Result<std::vector<bool>> read_windows(const GgufMetadata& metadata, const std::string& arch, uint32_t window,
                                       uint32_t period, ModelConfig& config);

// Reads the keys of experts into config.mixture, whose router then has what the file says, and else what the
// family gave it before. Nothing where the file names no experts. `shared` is the width of shared experts
// where only their tensors tell, 0 for none. Errors name the key and the number.
Status read_mixture(const GgufMetadata& metadata, ModelConfig& config, uint32_t shared = 0);
// The same of families that always have experts: the keys must be there.
Status require_mixture(const GgufMetadata& metadata, ModelConfig& config, uint32_t shared = 0);

// What models of an architecture that is not among kArchitectures need and do not find here, in words; ""
// where the name is not known.
std::string_view what_is_missing(std::string_view architecture);

// The readers of kArchitectures, each in a file of its own name.
Result<ModelConfig> read_cohere2_config(const GgufMetadata& metadata);
Result<ModelConfig> read_command_r_config(const GgufMetadata& metadata);
Result<ModelConfig> read_deepseek2_config(const GgufMetadata& metadata);
Result<ModelConfig> read_gemma_config(const GgufMetadata& metadata);
Result<ModelConfig> read_gemma2_config(const GgufMetadata& metadata);
Result<ModelConfig> read_gemma3_config(const GgufMetadata& metadata);
Result<ModelConfig> read_gpt_oss_config(const GgufMetadata& metadata);
Result<ModelConfig> read_granite_config(const GgufMetadata& metadata);
Result<ModelConfig> read_granitemoe_config(const GgufMetadata& metadata);
Result<ModelConfig> read_llama_config(const GgufMetadata& metadata);
Result<ModelConfig> read_minicpm3_config(const GgufMetadata& metadata);
Result<ModelConfig> read_olmo2_config(const GgufMetadata& metadata);
Result<ModelConfig> read_olmoe_config(const GgufMetadata& metadata);
Result<ModelConfig> read_phi3_config(const GgufMetadata& metadata);
Result<ModelConfig> read_plm_config(const GgufMetadata& metadata);
Result<ModelConfig> read_qwen2_config(const GgufMetadata& metadata);
Result<ModelConfig> read_qwen2moe_config(const GgufMetadata& metadata);
Result<ModelConfig> read_qwen3_config(const GgufMetadata& metadata);
Result<ModelConfig> read_qwen3moe_config(const GgufMetadata& metadata);
Result<ModelConfig> read_smollm3_config(const GgufMetadata& metadata);
Result<ModelConfig> read_stablelm_config(const GgufMetadata& metadata);

}  // namespace kvasir
