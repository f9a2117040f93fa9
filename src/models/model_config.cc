#include "models/model_config.h"

#include <fmt/core.h>

#include <algorithm>

#include "models/arch/arch.h"

namespace kvasir {
namespace {

constexpr ArchSpec kArchitectures[] = {
    {"llama", read_llama_config, true},
    {"qwen2", read_qwen2_config},
    {"qwen2moe", read_qwen2moe_config, true},
    {"qwen3", read_qwen3_config},
    {"qwen3moe", read_qwen3moe_config, true},
    {"gemma", read_gemma_config},
    {"gemma2", read_gemma2_config},
    {"gemma3", read_gemma3_config},
    {"phi3", read_phi3_config},
    {"smollm3", read_smollm3_config},
    {"granite", read_granite_config},
    {"granitemoe", read_granitemoe_config, true},
    {"olmo2", read_olmo2_config},
    {"olmoe", read_olmoe_config, true},
    {"stablelm", read_stablelm_config},
    {"command-r", read_command_r_config},
    {"cohere2", read_cohere2_config},
    {"gpt-oss", read_gpt_oss_config, true},
    {"deepseek2", read_deepseek2_config, true},
    {"minicpm3", read_minicpm3_config},
    {"plm", read_plm_config},
};

Status refuse_experts(const GgufMetadata& metadata, const ArchSpec& spec) {
  const std::string key = fmt::format("{}.expert_count", spec.name);
  KVASIR_ASSIGN_OR_RETURN(const auto experts, metadata.get_int(key, 0, int64_t{1} << 30));
  if (spec.experts || experts.value_or(0) == 0) return {};
  std::string known;
  for (const ArchSpec& other : kArchitectures)
    if (other.experts) known += fmt::format("{}{}", known.empty() ? "" : ", ", other.name);
  return unsupported(fmt::format("{} is {}: '{}' is supported without experts; with experts are {}", key,
                                 *experts, spec.name, known));
}

}  // namespace

bool ModelConfig::has_local_rope() const {
  return std::find(ropes.begin(), ropes.end(), LayerRope::kLocal) != ropes.end();
}

uint32_t ModelConfig::widest_ffn() const {
  const uint32_t dense = layers_with_experts() < layers ? ffn_dim : 0;
  return std::max(dense, mixture.shared_ffn_dim);
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
  const std::string_view missing = what_is_missing(name);
  const std::string why = missing.empty() ? "" : fmt::format(", for it needs {}", missing);
  return unsupported(
      fmt::format("general.architecture is '{}': not supported{}; supported are {}", name, why, known));
}

Result<ModelConfig> read_model_config(const GgufMetadata& metadata) {
  KVASIR_ASSIGN_OR_RETURN(const std::string arch, metadata.require_string("general.architecture"));
  KVASIR_ASSIGN_OR_RETURN(const ArchSpec* spec, find_architecture(arch));
  KVASIR_RETURN_IF_ERROR(refuse_experts(metadata, *spec));
  return spec->read_config(metadata);
}

}  // namespace kvasir
