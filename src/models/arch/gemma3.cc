#include <fmt/core.h>

#include <cmath>
#include <variant>
#include <vector>

#include "models/arch/arch.h"

namespace kvasir {
namespace {

// Which layers attend to a window: the file lists them one by one, or says that of every so many (6 where it
// says nothing) the last one does not.
Result<std::vector<bool>> windowed_layers(const GgufMetadata& metadata, uint32_t layers) {
  constexpr const char* kKey = "gemma3.attention.sliding_window_pattern";
  const GgufMetadata::Value* value = metadata.find(kKey);
  if (value != nullptr && std::holds_alternative<std::vector<bool>>(*value)) {
    KVASIR_ASSIGN_OR_RETURN(const std::vector<bool>* listed, metadata.get_bools(kKey));
    if (listed->size() == layers) return *listed;
    return corrupt(
        fmt::format("{} lists {} layers, and gemma3.block_count is {}", kKey, listed->size(), layers));
  }
  KVASIR_ASSIGN_OR_RETURN(const auto pattern, metadata.get_int(kKey, 1, 1024));
  const auto period = static_cast<uint32_t>(pattern.value_or(6));
  std::vector<bool> windowed(layers);
  for (uint32_t l = 0; l < layers; ++l) windowed[l] = l % period < period - 1;
  return windowed;
}

}  // namespace

// Gemma 3 (text): embeddings scaled by sqrt(width), GELU, norms on q and k and after each branch; some layers
// attend to everything with the long RoPE base, the others to a window with base 10000 and no scaling. Files
// may lack the local base. The converter has added 1 to the norm weights.
Result<ModelConfig> read_gemma3_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, read_common_config(metadata, "gemma3"));
  c.rope_kind = RopeKind::kNeox;
  c.activation = Activation::kGeluTanh;
  c.embedding_scale = std::sqrt(static_cast<float>(c.hidden_dim));
  KVASIR_ASSIGN_OR_RETURN(const auto base, metadata.get_float("gemma3.rope.freq_base"));
  if (!base) c.rope_base = 1e6;
  KVASIR_ASSIGN_OR_RETURN(const auto local, metadata.get_float("gemma3.rope.freq_base_swa"));
  c.local_rope = true;
  c.rope_base_local = local.value_or(10000.0);
  if (!(std::isfinite(c.rope_base_local) && c.rope_base_local > 0))
    return corrupt(fmt::format("gemma3.rope.freq_base_swa is {}: must be positive", c.rope_base_local));
  KVASIR_ASSIGN_OR_RETURN(const auto cap, metadata.get_float("gemma3.final_logit_softcapping"));
  c.final_softcap = static_cast<float>(cap.value_or(0.0));
  KVASIR_ASSIGN_OR_RETURN(const auto window, metadata.get_int("gemma3.attention.sliding_window", 1, 1 << 30));
  KVASIR_ASSIGN_OR_RETURN(const std::vector<bool> windowed, windowed_layers(metadata, c.layers));
  for (uint32_t l = 0; l < c.layers && window; ++l)
    if (windowed[l]) c.windows[l] = static_cast<uint32_t>(*window);
  return c;
}

}  // namespace kvasir
