#include <fmt/core.h>

#include <cmath>
#include <utility>
#include <variant>

#include "models/arch/arch.h"

namespace kvasir {
namespace {

constexpr int64_t kMaxWidth = 1 << 18;

Status read_dimensions(const GgufMetadata& m, const std::string& arch, ModelConfig& c) {
  const auto require = [&](const char* suffix, int64_t max, uint32_t& out) -> Status {
    KVASIR_ASSIGN_OR_RETURN(const int64_t value, m.require_int(arch + suffix, 1, max));
    out = static_cast<uint32_t>(value);
    return {};
  };
  KVASIR_RETURN_IF_ERROR(require(".block_count", 1024, c.layers));
  KVASIR_RETURN_IF_ERROR(require(".embedding_length", kMaxWidth, c.hidden_dim));
  KVASIR_RETURN_IF_ERROR(require(".feed_forward_length", kMaxWidth, c.ffn_dim));
  KVASIR_RETURN_IF_ERROR(require(".attention.head_count", 1024, c.heads));
  KVASIR_RETURN_IF_ERROR(require(".context_length", int64_t{1} << 30, c.context_length));
  KVASIR_ASSIGN_OR_RETURN(c.kv_heads, int_or(m, arch + ".attention.head_count_kv", 1, 1024, c.heads));
  KVASIR_ASSIGN_OR_RETURN(c.head_dim,
                          int_or(m, arch + ".attention.key_length", 1, 1024, c.hidden_dim / c.heads));
  KVASIR_ASSIGN_OR_RETURN(const uint32_t v_dim,
                          int_or(m, arch + ".attention.value_length", 1, 1024, c.head_dim));
  if (v_dim != c.head_dim)
    return unsupported(fmt::format("{}.attention.value_length is {} and key_length {}: must be equal", arch,
                                   v_dim, c.head_dim));
  if (c.heads % c.kv_heads != 0)
    return corrupt(
        fmt::format("{0}.attention.head_count is {1}, not a multiple of {0}.attention.head_count_kv {2}",
                    arch, c.heads, c.kv_heads));
  if (c.heads / c.kv_heads > kAttnMaxRows)
    return unsupported(fmt::format("{} heads share {} KV heads: at most {} may share one", c.heads,
                                   c.kv_heads, kAttnMaxRows));
  if (c.head_dim % 16 != 0 || c.head_dim > 256)
    return unsupported(fmt::format("head dimension {}: must be a multiple of 16, at most 256", c.head_dim));
  for (const auto& [what, value] :
       {std::pair{".embedding_length", c.hidden_dim}, {".feed_forward_length", c.ffn_dim}})
    if (value % 32 != 0)
      return unsupported(fmt::format("{}{} is {}: must be a multiple of 32", arch, what, value));
  if (c.q_dim() % 32 != 0)
    return unsupported(
        fmt::format("{} heads of {}: must span a multiple of 32 values together", c.heads, c.head_dim));
  return {};
}

Result<double> rope_number(const GgufMetadata& m, const std::string& arch, const char* suffix,
                           double fallback) {
  return positive_or(m, arch + ".rope.scaling." + suffix, fallback);
}

// The keys that converters write for YaRN, and those that would change what it means.
Status read_yarn(const GgufMetadata& m, const std::string& arch, RopeScaling& scaling) {
  KVASIR_ASSIGN_OR_RETURN(scaling.yarn_factor, rope_number(m, arch, "factor", 1.0));
  KVASIR_ASSIGN_OR_RETURN(scaling.beta_fast, rope_number(m, arch, "yarn_beta_fast", 32.0));
  KVASIR_ASSIGN_OR_RETURN(scaling.beta_slow, rope_number(m, arch, "yarn_beta_slow", 1.0));
  if (scaling.original_context == 0)
    return corrupt(
        fmt::format("{0}.rope.scaling.original_context_length is missing, and {0}.rope.scaling.type "
                    "is 'yarn'",
                    arch));
  KVASIR_ASSIGN_OR_RETURN(const double given,
                          rope_number(m, arch, "yarn_attn_factor", yarn_magnitude(scaling.yarn_factor)));
  scaling.magnitude *= given;
  for (const auto& [suffix, only] : {std::pair{"yarn_ext_factor", 1.0}, {"yarn_log_multiplier", 0.0}}) {
    const std::string key = arch + ".rope.scaling." + suffix;
    KVASIR_ASSIGN_OR_RETURN(const auto value, m.get_float(key));
    if (value && *value != only)
      return unsupported(fmt::format("{} is {}: only {} is supported for {}", key, *value, only, arch));
  }
  return {};
}

Status read_rope(const GgufMetadata& m, const std::string& arch, ModelConfig& c) {
  KVASIR_ASSIGN_OR_RETURN(c.rope_dim, int_or(m, arch + ".rope.dimension_count", 2, c.head_dim, c.head_dim));
  if (c.rope_dim % 2 != 0)
    return corrupt(fmt::format("{}.rope.dimension_count is {}: must be even", arch, c.rope_dim));
  KVASIR_ASSIGN_OR_RETURN(c.rope_base, positive_or(m, arch + ".rope.freq_base", 10000.0));
  RopeScaling& scaling = c.rope_scaling;
  KVASIR_ASSIGN_OR_RETURN(scaling.original_context,
                          int_or(m, arch + ".rope.scaling.original_context_length", 0, int64_t{1} << 30, 0));
  KVASIR_ASSIGN_OR_RETURN(scaling.magnitude, rope_number(m, arch, "attn_factor", 1.0));
  KVASIR_ASSIGN_OR_RETURN(const auto type, m.get_string(arch + ".rope.scaling.type"));
  if (type == "yarn") return read_yarn(m, arch, scaling);
  scaling.by_factors = type == "longrope";
  if (type == "none" || type == "longrope") return {};
  if (type && *type != "linear")
    return unsupported(fmt::format(
        "{}.rope.scaling.type is '{}': supported are none, linear, yarn and longrope", arch, *type));
  KVASIR_ASSIGN_OR_RETURN(const double old_factor, positive_or(m, arch + ".rope.scale_linear", 1.0));
  KVASIR_ASSIGN_OR_RETURN(scaling.linear_factor, rope_number(m, arch, "factor", old_factor));
  return {};
}

}  // namespace

Result<uint32_t> int_or(const GgufMetadata& m, const std::string& key, int64_t min, int64_t max,
                        uint32_t fallback) {
  KVASIR_ASSIGN_OR_RETURN(const std::optional<int64_t> value, m.get_int(key, min, max));
  return value ? static_cast<uint32_t>(*value) : fallback;
}

Result<double> positive_or(const GgufMetadata& m, const std::string& key, double fallback) {
  KVASIR_ASSIGN_OR_RETURN(const std::optional<double> value, m.get_float(key));
  if (value && !(std::isfinite(*value) && *value > 0))
    return corrupt(fmt::format("{} is {}: must be positive and finite", key, *value));
  return value.value_or(fallback);
}

Result<float> softcap_or_none(const GgufMetadata& m, const std::string& key) {
  KVASIR_ASSIGN_OR_RETURN(const std::optional<double> value, m.get_float(key));
  if (value && !(std::isfinite(*value) && *value >= 0))
    return corrupt(fmt::format("{} is {}: must not be negative", key, *value));
  return static_cast<float>(value.value_or(0.0));
}

Result<std::vector<bool>> read_windows(const GgufMetadata& m, const std::string& arch, uint32_t window,
                                       uint32_t period, ModelConfig& c) {
  KVASIR_ASSIGN_OR_RETURN(const uint32_t size,
                          int_or(m, arch + ".attention.sliding_window", 0, 1 << 30, window));
  const std::string key = arch + ".attention.sliding_window_pattern";
  const GgufMetadata::Value* value = m.find(key);
  const bool is_list = value != nullptr && std::holds_alternative<std::vector<bool>>(*value);
  std::vector<bool> windowed(c.layers);
  if (is_list) {
    KVASIR_ASSIGN_OR_RETURN(const std::vector<bool>* listed, m.get_bools(key));
    if (listed->size() != c.layers)
      return corrupt(
          fmt::format("{} lists {} layers, and {}.block_count is {}", key, listed->size(), arch, c.layers));
    windowed = *listed;
  } else {
    KVASIR_ASSIGN_OR_RETURN(const uint32_t every, int_or(m, key, 0, 1024, period));
    for (uint32_t l = 0; l < c.layers; ++l) windowed[l] = every == 0 || l % every < every - 1;
  }
  if (size == 0) windowed.assign(c.layers, false);
  for (uint32_t l = 0; l < c.layers; ++l) c.windows[l] = windowed[l] && size < c.context_length ? size : 0;
  return windowed;
}

Result<ModelConfig> read_common_config(const GgufMetadata& m, const std::string& arch, NormKind norm) {
  ModelConfig c;
  c.architecture = arch;
  c.norm = norm;
  KVASIR_ASSIGN_OR_RETURN(const auto name, m.get_string("general.name"));
  c.name = name.value_or(arch);
  KVASIR_RETURN_IF_ERROR(read_dimensions(m, arch, c));
  KVASIR_RETURN_IF_ERROR(read_rope(m, arch, c));
  const char* epsilon =
      norm == NormKind::kRms ? ".attention.layer_norm_rms_epsilon" : ".attention.layer_norm_epsilon";
  KVASIR_ASSIGN_OR_RETURN(const double eps, positive_or(m, arch + epsilon, 1e-5));
  c.norm_eps = static_cast<float>(eps);
  c.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
  c.windows.assign(c.layers, 0);
  c.ropes.assign(c.layers, LayerRope::kGlobal);
  return c;
}

}  // namespace kvasir
