#include "engine/eagle_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cmath>
#include <utility>

#include "base/log.h"
#include "engine/head_tensors.h"
#include "models/forward_batch.h"

namespace kvasir {
namespace {

class EagleReader {
 public:
  EagleReader(const SafetensorsFile& file, const HeadConfig& config, const CausalLm& target,
              uint32_t frequent)
      : tensors_(file),
        config_(config),
        target_(target),
        d_(target.config().hidden_dim),
        frequent_(frequent) {}

  Result<EagleWeights> read() {
    w_.fuses_layers = tensors_.has("midlayer.self_attn.q_proj.weight");
    layer_ = w_.fuses_layers ? "midlayer." : "layers.0.";
    w_.norm_before_residual = config_.flag("norm_before_residual");
    if (config_.flag("norm_before_fc")) return unsupported("heads with norm_before_fc are not supported");
    if (config_.given("rope_scaling"))
      spdlog::warn("the head's rope_scaling is left out: its guesses in long texts will be worse");
    KVASIR_RETURN_IF_ERROR(read_points());
    KVASIR_RETURN_IF_ERROR(read_shape());
    read_matrices();
    read_output();
    for (const char* name : {"embed_tokens.weight", "t2d", "layers.0.self_attn.rotary_emb.inv_freq",
                             "midlayer.self_attn.rotary_emb.inv_freq"})
      tensors_.ignore(name);
    KVASIR_RETURN_IF_ERROR(tensors_.status());
    return std::move(w_);
  }

 private:
  double number(const char* key, const char* in_metadata, double otherwise) const {
    if (const auto value = config_.number(key)) return *value;
    return config_.number(in_metadata).value_or(otherwise);
  }

  // The three layers that EAGLE-3 fuses: those of its reference where nothing is said.
  Status read_points() {
    if (!w_.fuses_layers) {
      w_.points = {HiddenTap::kOutputNorm};
      return {};
    }
    const uint32_t layers = target_.config().layers;
    KVASIR_ASSIGN_OR_RETURN(w_.points, config_.list("eagle_aux_hidden_state_layer_ids"));
    if (w_.points.empty()) {
      KVASIR_ASSIGN_OR_RETURN(w_.points, config_.list("aux_layers"));
    }
    if (w_.points.empty() && layers >= 6) w_.points = {2, layers / 2, layers - 3};
    if (w_.points.size() != 3 || !(w_.points[0] < w_.points[1] && w_.points[1] < w_.points[2]) ||
        w_.points[2] > layers)
      return corrupt(fmt::format("it fuses layers {}, and three ascending ones of the model's {} are needed",
                                 fmt::join(w_.points, ", "), layers));
    return {};
  }

  Status read_shape() {
    const ModelConfig& target = target_.config();
    ModelConfig& c = w_.config;
    c = {};
    c.layers = 1;
    c.hidden_dim = d_;
    c.vocab_size = target.vocab_size;
    c.context_length = target.context_length;
    c.windows = {0};
    c.ropes = {LayerRope::kGlobal};
    c.rope_kind = RopeKind::kNeox;
    const double head_dim = number("head_dim", "head_dim", target.head_dim);
    if (!(head_dim >= 16 && head_dim <= kAttnMaxHeadDim))
      return unsupported(
          fmt::format("heads of {} values; 16 to {} are supported", head_dim, kAttnMaxHeadDim));
    c.head_dim = static_cast<uint32_t>(head_dim);
    c.rope_dim = c.head_dim;
    c.rope_base = number("rope_theta", "rope_base", target.rope_base);
    c.norm_eps = static_cast<float>(number("rms_norm_eps", "norm_eps", target.norm_eps));
    c.attention_scale = 1 / std::sqrt(static_cast<float>(c.head_dim));
    const uint32_t inputs = w_.attention_inputs();
    const uint32_t q = tensors_.rows_of(layer_ + "self_attn.q_proj.weight", inputs);
    const uint32_t k = tensors_.rows_of(layer_ + "self_attn.k_proj.weight", inputs);
    c.ffn_dim = tensors_.rows_of(layer_ + "mlp.gate_proj.weight", d_);
    if (q == 0 || k == 0 || c.ffn_dim == 0) return tensors_.status();
    const bool whole = c.head_dim % 16 == 0 && q % c.head_dim == 0 && k % c.head_dim == 0 && q % k == 0 &&
                       q % kGroup == 0 && c.ffn_dim % kGroup == 0;
    if (!whole)
      return unsupported(
          fmt::format("{} query and {} key values, {} of the feed-forward part, with heads of {}", q, k,
                      c.ffn_dim, c.head_dim));
    c.heads = q / c.head_dim;
    c.kv_heads = k / c.head_dim;
    return {};
  }

  void read_matrices() {
    const ModelConfig& c = w_.config;
    const uint32_t inputs = w_.attention_inputs();
    // F16: hidden states have values that are hundreds of times as large as their neighbours, whose group of
    // 32 would have nothing left of its own.
    w_.fc = tensors_.matrix("fc.weight", d_, w_.fuses_layers ? w_.feature_width() : 2 * d_, true);
    w_.fc_bias = tensors_.vector("fc.bias", d_, true);
    w_.q = tensors_.matrix(layer_ + "self_attn.q_proj.weight", c.q_dim(), inputs);
    w_.k = tensors_.matrix(layer_ + "self_attn.k_proj.weight", c.kv_dim(), inputs);
    w_.v = tensors_.matrix(layer_ + "self_attn.v_proj.weight", c.kv_dim(), inputs);
    w_.o = tensors_.matrix(layer_ + "self_attn.o_proj.weight", d_, c.q_dim());
    w_.gate = tensors_.matrix(layer_ + "mlp.gate_proj.weight", c.ffn_dim, d_);
    w_.up = tensors_.matrix(layer_ + "mlp.up_proj.weight", c.ffn_dim, d_);
    w_.down = tensors_.matrix(layer_ + "mlp.down_proj.weight", d_, c.ffn_dim);
    w_.ffn_norm = tensors_.vector(layer_ + "post_attention_layernorm.weight", d_);
    if (!w_.fuses_layers) return;
    w_.embedding_norm = tensors_.vector(layer_ + "input_layernorm.weight", d_);
    w_.hidden_norm = tensors_.vector(layer_ + "hidden_norm.weight", d_);
    w_.output_norm = tensors_.vector("norm.weight", d_);
  }

  void read_output() {
    std::vector<int64_t> tokens = tensors_.integers("d2t");
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (__builtin_add_overflow(tokens[i], static_cast<int64_t>(i), &tokens[i])) tokens[i] = -1;
    }
    w_.output = guess_head(tensors_, "lm_head.weight", target_, tokens, frequent_);
  }

  HeadTensors tensors_;
  const HeadConfig& config_;
  const CausalLm& target_;
  uint32_t d_;
  uint32_t frequent_;
  std::string layer_;
  EagleWeights w_;
};

}  // namespace

Result<EagleWeights> load_eagle(const std::string& path, const CausalLm& target, uint32_t frequent) {
  KVASIR_ASSIGN_OR_RETURN(const SafetensorsFile file, SafetensorsFile::open(head_path(path)));
  KVASIR_ASSIGN_OR_RETURN(const HeadConfig config, HeadConfig::read(file));
  Result<EagleWeights> weights = EagleReader(file, config, target, frequent).read();
  if (weights.ok()) return weights;
  return Status(weights.status().code(), fmt::format("'{}': {}", file.path(), weights.message()));
}

}  // namespace kvasir
