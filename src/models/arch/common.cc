#include <fmt/core.h>

#include <cmath>

#include "models/arch/arch.h"

namespace kvasir {
namespace {

constexpr int64_t kMaxWidth = 1 << 18;

// Reads an optional integer key with a default.
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
  if (c.q_dim() % 32 != 0 || (c.heads / c.kv_heads) * c.head_dim % 32 != 0)
    return unsupported(
        fmt::format("{} heads of {}: a head group must span a multiple of 32 values", c.heads, c.head_dim));
  return {};
}

Status read_rope(const GgufMetadata& m, const std::string& arch, ModelConfig& c) {
  KVASIR_ASSIGN_OR_RETURN(c.rope_dim, int_or(m, arch + ".rope.dimension_count", 2, c.head_dim, c.head_dim));
  if (c.rope_dim % 2 != 0)
    return corrupt(fmt::format("{}.rope.dimension_count is {}: must be even", arch, c.rope_dim));
  KVASIR_ASSIGN_OR_RETURN(c.rope_base, positive_or(m, arch + ".rope.freq_base", 10000.0));
  KVASIR_ASSIGN_OR_RETURN(const auto type, m.get_string(arch + ".rope.scaling.type"));
  if (type && *type != "none" && *type != "linear")
    return unsupported(
        fmt::format("{}.rope.scaling.type is '{}': supported are none and linear", arch, *type));
  KVASIR_ASSIGN_OR_RETURN(const double old_factor, positive_or(m, arch + ".rope.scale_linear", 1.0));
  KVASIR_ASSIGN_OR_RETURN(const double factor, positive_or(m, arch + ".rope.scaling.factor", old_factor));
  if (!type || *type == "linear") c.rope_linear_factor = factor;
  return {};
}

}  // namespace

Result<ModelConfig> read_common_config(const GgufMetadata& m, const std::string& arch) {
  ModelConfig c;
  c.architecture = arch;
  KVASIR_ASSIGN_OR_RETURN(const auto name, m.get_string("general.name"));
  c.name = name.value_or(arch);
  KVASIR_RETURN_IF_ERROR(read_dimensions(m, arch, c));
  KVASIR_RETURN_IF_ERROR(read_rope(m, arch, c));
  KVASIR_ASSIGN_OR_RETURN(const double eps, positive_or(m, arch + ".attention.layer_norm_rms_epsilon", 1e-5));
  c.norm_eps = static_cast<float>(eps);
  c.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(c.head_dim)));
  c.windows.assign(c.layers, 0);
  KVASIR_ASSIGN_OR_RETURN(const auto experts, m.get_int(arch + ".expert_count", 0, 1 << 20));
  if (experts.value_or(0) > 0)
    return unsupported(
        fmt::format("{}.expert_count is {}: mixture-of-experts layers are not supported", arch, *experts));
  return c;
}

}  // namespace kvasir
