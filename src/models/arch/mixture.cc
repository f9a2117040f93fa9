#include <fmt/core.h>

#include <string>
#include <utility>

#include "models/arch/arch.h"

namespace kvasir {
namespace {

constexpr int64_t kMaxWidth = 1 << 18;

// How the router scores and weighs, by the keys that converters write; what they leave out is the family's.
Status read_router(const GgufMetadata& m, const std::string& arch, RouterShape& r) {
  enum : uint32_t { kOfTheFamily, kSoftmax, kSigmoid, kSoftmaxOfChosen };  // llama.cpp's gating functions
  KVASIR_ASSIGN_OR_RETURN(const uint32_t gating, int_or(m, arch + ".expert_gating_func", 0, 1 << 20, 0));
  if (gating > kSoftmaxOfChosen)
    return unsupported(fmt::format(
        "{}.expert_gating_func is {}: supported are softmax (1), sigmoid (2) and softmax of the chosen (3)",
        arch, gating));
  if (gating != kOfTheFamily)
    r.score = gating == kSigmoid ? RouterShape::Score::kSigmoid : RouterShape::Score::kSoftmax;
  KVASIR_ASSIGN_OR_RETURN(const auto normalised, m.get_bool(arch + ".expert_weights_norm"));
  r.normalised = gating == kSoftmaxOfChosen || normalised.value_or(r.normalised);
  KVASIR_ASSIGN_OR_RETURN(const auto scale, m.get_float(arch + ".expert_weights_scale"));
  if (scale && *scale != 0) {  // 0: none
    KVASIR_ASSIGN_OR_RETURN(const double positive, positive_or(m, arch + ".expert_weights_scale", 1.0));
    r.scale = static_cast<float>(positive);
  }
  const auto groups_of = [&](const char* key, uint32_t fallback) -> Result<uint32_t> {
    KVASIR_ASSIGN_OR_RETURN(const uint32_t count, int_or(m, arch + key, 0, kMostExpertsUsed, fallback));
    return count == 0 ? fallback : count;  // 0: none
  };
  KVASIR_ASSIGN_OR_RETURN(r.groups, groups_of(".expert_group_count", 1));
  KVASIR_ASSIGN_OR_RETURN(r.groups_used, groups_of(".expert_group_used_count", r.groups));
  return {};
}

Status check_mixture(const std::string& arch, const ModelConfig& c) {
  const MixtureShape& x = c.mixture;
  const RouterShape& r = x.router;
  for (const auto& [what, value] : {std::pair{".expert_feed_forward_length", x.ffn_dim},
                                    {".expert_shared_feed_forward_length", x.shared_ffn_dim}})
    if (value % 32 != 0)
      return unsupported(fmt::format("{}{} is {}: must be a multiple of 32", arch, what, value));
  if (r.experts % r.groups != 0 || r.groups_used > r.groups)
    return corrupt(fmt::format("{}.expert_count is {}, of which {} groups of {} may be chosen", arch,
                               r.experts, r.groups_used, r.groups));
  if (r.used > r.groups_used * (r.experts / r.groups))
    return corrupt(fmt::format("{0}.expert_used_count is {1}, and {0}.expert_count {2}", arch, r.used,
                               r.groups_used * (r.experts / r.groups)));
  return {};
}

}  // namespace

Status require_mixture(const GgufMetadata& m, ModelConfig& c, uint32_t shared) {
  const std::string& arch = c.architecture;
  RouterShape& r = c.mixture.router;
  KVASIR_ASSIGN_OR_RETURN(const int64_t experts, m.require_int(arch + ".expert_count", 1, kMostExperts));
  KVASIR_ASSIGN_OR_RETURN(const int64_t used,
                          m.require_int(arch + ".expert_used_count", 1, kMostExpertsUsed));
  r.experts = static_cast<uint32_t>(experts);
  r.used = static_cast<uint32_t>(used);
  KVASIR_RETURN_IF_ERROR(read_router(m, arch, r));
  KVASIR_ASSIGN_OR_RETURN(c.mixture.ffn_dim,
                          int_or(m, arch + ".expert_feed_forward_length", 1, kMaxWidth, c.ffn_dim));
  KVASIR_ASSIGN_OR_RETURN(const uint32_t count, int_or(m, arch + ".expert_shared_count", 0, 1024, 0));
  const uint32_t together = count > 0 ? count * c.mixture.ffn_dim : shared;
  KVASIR_ASSIGN_OR_RETURN(c.mixture.shared_ffn_dim,
                          int_or(m, arch + ".expert_shared_feed_forward_length", 0, kMaxWidth, together));
  KVASIR_ASSIGN_OR_RETURN(c.mixture.leading_dense_layers,
                          int_or(m, arch + ".leading_dense_block_count", 0, c.layers, 0));
  for (const char* key : {".moe_every_n_layers", ".interleave_moe_layer_step"}) {
    KVASIR_ASSIGN_OR_RETURN(const uint32_t step, int_or(m, arch + key, 0, 1 << 20, 1));
    if (step > 1)
      return unsupported(fmt::format(
          "{}{} is {}: layers with experts must follow one another, from leading_dense_block_count on", arch,
          key, step));
  }
  return check_mixture(arch, c);
}

Status read_mixture(const GgufMetadata& m, ModelConfig& c, uint32_t shared) {
  KVASIR_ASSIGN_OR_RETURN(const uint32_t experts,
                          int_or(m, c.architecture + ".expert_count", 0, kMostExperts, 0));
  return experts == 0 ? Status() : require_mixture(m, c, shared);
}

}  // namespace kvasir
