#include "models/model_config.h"

#include <fmt/core.h>

#include "models/arch/arch.h"

namespace kvasir {
namespace {

constexpr ArchSpec kArchitectures[] = {
    {"llama", read_llama_config},
    {"qwen2", read_qwen2_config},
    {"gemma3", read_gemma3_config},
};

}  // namespace

std::vector<KvLayerSpec> ModelConfig::kv_layers() const {
  std::vector<KvLayerSpec> specs(layers);
  for (uint32_t l = 0; l < layers; ++l)
    specs[l] = {.kv_heads = kv_heads, .head_dim = head_dim, .window = windows[l]};
  return specs;
}

std::span<const ArchSpec> architectures() {
  return kArchitectures;
}

Result<const ArchSpec*> find_architecture(const std::string& name) {
  std::string known;
  for (const ArchSpec& spec : kArchitectures) {
    if (name == spec.name) return &spec;
    known += known.empty() ? spec.name : fmt::format(", {}", spec.name);
  }
  return unsupported(
      fmt::format("general.architecture is '{}': not supported; supported are {}", name, known));
}

Result<ModelConfig> read_model_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(const std::string arch, metadata.require_string("general.architecture"));
  KVASIR_ASSIGN_OR_RETURN(const ArchSpec* spec, find_architecture(arch));
  return spec->read_config(metadata);
}

}  // namespace kvasir
