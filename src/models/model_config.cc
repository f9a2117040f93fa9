#include "models/model_config.h"

#include <fmt/core.h>

#include <algorithm>

#include "models/arch/arch.h"

namespace kvasir {
namespace {

constexpr ArchSpec kArchitectures[] = {
    {"llama", read_llama_config},       {"qwen2", read_qwen2_config},
    {"qwen3", read_qwen3_config},       {"gemma", read_gemma_config},
    {"gemma2", read_gemma2_config},     {"gemma3", read_gemma3_config},
    {"phi3", read_phi3_config},         {"smollm3", read_smollm3_config},
    {"granite", read_granite_config},   {"olmo2", read_olmo2_config},
    {"stablelm", read_stablelm_config}, {"command-r", read_command_r_config},
    {"cohere2", read_cohere2_config},   {"deepseek2", read_deepseek2_config},
    {"minicpm3", read_minicpm3_config}, {"plm", read_plm_config},
};

}  // namespace

bool ModelConfig::has_local_rope() const {
  return std::find(ropes.begin(), ropes.end(), LayerRope::kLocal) != ropes.end();
}

std::vector<KvLayerSpec> ModelConfig::kv_layers() const {
  std::vector<KvLayerSpec> specs(layers);
  for (uint32_t l = 0; l < layers; ++l)
    specs[l] = {
        .kv_heads = kv_heads, .head_dim = head_dim, .window = windows[l], .latent = mla ? mla->latent : 0};
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
  if (name == "eagle3")
    return unsupported(
        "general.architecture is 'eagle3': a head that drafts for a model; give it beside the model, as "
        "--speculate eagle=FILE");
  return unsupported(
      fmt::format("general.architecture is '{}': not supported; supported are {}", name, known));
}

Result<ModelConfig> read_model_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(const std::string arch, metadata.require_string("general.architecture"));
  KVASIR_ASSIGN_OR_RETURN(const ArchSpec* spec, find_architecture(arch));
  return spec->read_config(metadata);
}

}  // namespace kvasir
