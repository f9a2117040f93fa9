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
  for (const auto& [what, value] :
       {std::pair{".embedding_length", c.hidden_dim}, {".feed_forward_length", c.ffn_dim}})
    if (value % 32 != 0)
      return unsupported(fmt::format("{}{} is {}: must be a multiple of 32", arch, what, value));
  return {};
}

// Heads whose K and V are kept, one pair for each or for some query heads together.
Status read_heads(const GgufMetadata& m, const std::string& arch, ModelConfig& c) {
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
  if (c.q_dim() % 32 != 0)
    return unsupported(
        fmt::format("{} heads of {}: must span a multiple of 32 values together", c.heads, c.head_dim));
  return {};
}

// What kernels ask of the parts of a latent row and of a head.
Status check_mla(const std::string& arch, uint32_t heads, uint32_t rotated, const MlaConfig& mla) {
  if (heads > kLatentMaxRows)
    return unsupported(fmt::format("{}.attention.head_count is {}: at most {} heads may share a latent", arch,
                                   heads, kLatentMaxRows));
  struct Part {
    const char* what;
    uint32_t value, multiple, most;
  };
  for (const Part& p : {Part{"the latent of K and V", mla.latent, 32, kMaxLatent},
                        {"the rotated part of a head", rotated, 16, kMaxRotatedKey},
                        {"the plain part of a head", mla.nope_dim, 32, 1024},
                        {"the value of a head", mla.value_dim, 16, 1024},
                        {"the latent of queries", mla.query, 32, 1 << 18}})
    if (p.value % p.multiple != 0 || p.value > p.most)
      return unsupported(fmt::format("{}: {} has {} values: must be a multiple of {}, at most {}", arch,
                                     p.what, p.value, p.multiple, p.most));
  if (uint64_t{heads} * mla.value_dim % 32 != 0)
    return unsupported(
        fmt::format("{} heads of {}: must span a multiple of 32 values together", heads, mla.value_dim));
  return {};
}

Result<double> rope_number(const GgufMetadata& m, const std::string& arch, const char* suffix,
                           double fallback) {
  return positive_or(m, arch + ".rope.scaling." + suffix, fallback);
}

// The keys that converters write for YaRN, and those that would change what it means. With MLA the logarithm
// of the factor makes scores larger, and cos and sin stay as they are.
Status read_yarn(const GgufMetadata& m, const std::string& arch, ModelConfig& c) {
  RopeScaling& scaling = c.rope_scaling;
  KVASIR_ASSIGN_OR_RETURN(scaling.yarn_factor, rope_number(m, arch, "factor", 1.0));
  KVASIR_ASSIGN_OR_RETURN(scaling.beta_fast, rope_number(m, arch, "yarn_beta_fast", 32.0));
  KVASIR_ASSIGN_OR_RETURN(scaling.beta_slow, rope_number(m, arch, "yarn_beta_slow", 1.0));
  if (scaling.original_context == 0)
    return corrupt(
        fmt::format("{0}.rope.scaling.original_context_length is missing, and {0}.rope.scaling.type "
                    "is 'yarn'",
                    arch));
  const double usual = c.mla ? 1.0 : yarn_magnitude(scaling.yarn_factor);
  KVASIR_ASSIGN_OR_RETURN(const double given, rope_number(m, arch, "yarn_attn_factor", usual));
  scaling.magnitude *= given;
  const std::string slope = arch + ".rope.scaling.yarn_log_multiplier";
  KVASIR_ASSIGN_OR_RETURN(const auto logarithm, m.get_float(slope));
  if (c.mla && logarithm) {
    if (!(std::isfinite(*logarithm) && *logarithm >= 0))
      return corrupt(fmt::format("{} is {}: must not be negative", slope, *logarithm));
    const double grown = 1.0 + *logarithm * std::log(std::max(1.0, scaling.yarn_factor));
    c.attention_scale = static_cast<float>(static_cast<double>(c.attention_scale) * grown * grown);
  } else if (logarithm && *logarithm != 0.0) {
    return unsupported(fmt::format("{} is {}: only 0 is supported for {}", slope, *logarithm, arch));
  }
  const std::string extrapolation = arch + ".rope.scaling.yarn_ext_factor";
  KVASIR_ASSIGN_OR_RETURN(const auto value, m.get_float(extrapolation));
  if (value && *value != 1.0)
    return unsupported(fmt::format("{} is {}: only 1 is supported for {}", extrapolation, *value, arch));
  return {};
}

// The width that is rotated, at most `head` values.
Status read_rope_dim(const GgufMetadata& m, const std::string& arch, uint32_t head, ModelConfig& c) {
  KVASIR_ASSIGN_OR_RETURN(c.rope_dim, int_or(m, arch + ".rope.dimension_count", 2, head, head));
  if (c.rope_dim % 2 == 0) return {};
  return corrupt(fmt::format("{}.rope.dimension_count is {}: must be even", arch, c.rope_dim));
}

Status read_rope(const GgufMetadata& m, const std::string& arch, ModelConfig& c) {
  KVASIR_ASSIGN_OR_RETURN(c.rope_base, positive_or(m, arch + ".rope.freq_base", 10000.0));
  RopeScaling& scaling = c.rope_scaling;
  KVASIR_ASSIGN_OR_RETURN(scaling.original_context,
                          int_or(m, arch + ".rope.scaling.original_context_length", 0, int64_t{1} << 30, 0));
  KVASIR_ASSIGN_OR_RETURN(scaling.magnitude, rope_number(m, arch, "attn_factor", 1.0));
  KVASIR_ASSIGN_OR_RETURN(const auto type, m.get_string(arch + ".rope.scaling.type"));
  if (type == "yarn") return read_yarn(m, arch, c);
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

namespace {

// What is read before an architecture's heads are, and after.
Result<ModelConfig> begin_config(const GgufMetadata& m, const std::string& arch) {
  ModelConfig c;
  c.architecture = arch;
  KVASIR_ASSIGN_OR_RETURN(const auto name, m.get_string("general.name"));
  c.name = name.value_or(arch);
  KVASIR_RETURN_IF_ERROR(read_dimensions(m, arch, c));
  return c;
}

// `head`: of which RoPE's scores are products; their scale is 1 / sqrt(head) before YaRN.
Status end_config(const GgufMetadata& m, const std::string& arch, NormKind norm, uint32_t head,
                  ModelConfig& c) {
  c.norm = norm;
  c.attention_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(head)));
  KVASIR_RETURN_IF_ERROR(read_rope(m, arch, c));
  const char* epsilon =
      norm == NormKind::kRms ? ".attention.layer_norm_rms_epsilon" : ".attention.layer_norm_epsilon";
  KVASIR_ASSIGN_OR_RETURN(const double eps, positive_or(m, arch + epsilon, 1e-5));
  c.norm_eps = static_cast<float>(eps);
  c.windows.assign(c.layers, 0);
  c.ropes.assign(c.layers, LayerRope::kGlobal);
  return {};
}

}  // namespace

Result<ModelConfig> read_common_config(const GgufMetadata& m, const std::string& arch, NormKind norm) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, begin_config(m, arch));
  KVASIR_RETURN_IF_ERROR(read_heads(m, arch, c));
  KVASIR_RETURN_IF_ERROR(read_rope_dim(m, arch, c.head_dim, c));
  KVASIR_RETURN_IF_ERROR(end_config(m, arch, norm, c.head_dim, c));
  return c;
}

Result<ModelConfig> read_mla_config(const GgufMetadata& m, const std::string& arch) {
  KVASIR_ASSIGN_OR_RETURN(ModelConfig c, begin_config(m, arch));
  MlaConfig& mla = c.mla.emplace();
  KVASIR_ASSIGN_OR_RETURN(const int64_t latent,
                          m.require_int(arch + ".attention.kv_lora_rank", 1, kMaxWidth));
  mla.latent = static_cast<uint32_t>(latent);
  KVASIR_ASSIGN_OR_RETURN(mla.query, int_or(m, arch + ".attention.q_lora_rank", 0, kMaxWidth, 0));
  const std::string suffix = m.contains(arch + ".attention.key_length_mla") ? "_mla" : "";
  const std::string key = arch + ".attention.key_length" + suffix;
  KVASIR_ASSIGN_OR_RETURN(const int64_t head, m.require_int(key, 1, 2048));
  KVASIR_ASSIGN_OR_RETURN(
      mla.value_dim, int_or(m, arch + ".attention.value_length" + suffix, 1, 2048, c.hidden_dim / c.heads));
  KVASIR_RETURN_IF_ERROR(read_rope_dim(m, arch, static_cast<uint32_t>(head), c));
  if (c.rope_dim == head)
    return corrupt(fmt::format("{} is {}, all of which {}.rope.dimension_count rotates", key, head, arch));
  mla.nope_dim = static_cast<uint32_t>(head) - c.rope_dim;
  KVASIR_RETURN_IF_ERROR(check_mla(arch, c.heads, c.rope_dim, mla));
  c.kv_heads = 1;
  c.head_dim = mla.latent + c.rope_dim;
  KVASIR_RETURN_IF_ERROR(end_config(m, arch, NormKind::kRms, static_cast<uint32_t>(head), c));
  return c;
}

}  // namespace kvasir
