#pragma once

#include <string>

#include "models/model_config.h"

namespace kvasir {

// Reads the keys that every decoder-only family shares (`<arch>.block_count`, `.embedding_length`, head
// counts and widths, norm epsilon, RoPE base and linear scaling, context length) and checks that they fit
// together. Errors name the key and the number. Families then set what is theirs.
Result<ModelConfig> read_common_config(const GgufMetadata& metadata, const std::string& arch);

Result<ModelConfig> read_llama_config(const GgufMetadata& metadata);
Result<ModelConfig> read_qwen2_config(const GgufMetadata& metadata);
Result<ModelConfig> read_gemma3_config(const GgufMetadata& metadata);

}  // namespace kvasir
