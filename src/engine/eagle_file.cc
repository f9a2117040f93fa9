#include "engine/eagle_file.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <utility>

#include "base/log.h"
#include "engine/head_tensors.h"
#include "gguf/byte_cursor.h"
#include "kernels/table.h"
#include "models/forward_batch.h"

namespace kvasir {
namespace {

class EagleReader {
 public:
  EagleReader(const HeadFile& file, const CausalLm& target, uint32_t frequent)
      : tensors_(file),
        config_(file.config()),
        target_(target),
        d_(target.config().hidden_dim),
        frequent_(frequent) {}

  Result<EagleWeights> read() {
    layer_ = tensors_.has("midlayer.self_attn.q_proj.weight") ? "midlayer." : "layers.0.";
    w_.fuses_layers = layer_ == "midlayer." || tensors_.has("layers.0.hidden_norm.weight");
    // Files of the speculators library leave a flag that is set unsaid.
    w_.norm_before_residual =
        config_.flag("norm_before_residual", config_.text("speculators_model_type") == "eagle3");
    w_.norm_output = w_.fuses_layers && config_.flag("norm_output");
    KVASIR_RETURN_IF_ERROR(check_kind());
    KVASIR_RETURN_IF_ERROR(read_points());
    KVASIR_RETURN_IF_ERROR(read_shape());
    read_matrices();
    read_norms();
    read_embedding();
    read_output();
    for (const char* name : {"t2d", "input_norm.weight", "layers.0.self_attn.rotary_emb.inv_freq",
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

  // What such heads may have and is not computed here.
  Status check_kind() const {
    for (const char* key : {"target_hidden_size", "hidden_size"}) {
      const double width = config_.number(key).value_or(d_);
      if (width != d_)
        return unsupported(fmt::format(
            "{} is {}, and the model is {} wide: heads of the model's width are supported", key, width, d_));
    }
    if (tensors_.has("layers.1.self_attn.q_proj.weight") ||
        config_.number("num_hidden_layers").value_or(1) > 1)
      return unsupported("the head has several layers; heads of one are supported");
    if (tensors_.has("mask_hidden"))
      return unsupported("tensor 'mask_hidden': heads that draft all tokens at once are not supported");
    if (tensors_.has("fusion_fc.weight"))
      return unsupported(
          "tensor 'fusion_fc.weight': EAGLE-1 heads under the speculators library's names are not supported");
    if (!config_.flag("use_aux_hidden_state", true))
      return unsupported("use_aux_hidden_state is false: EAGLE-3 heads that fuse layers are supported");
    if (!w_.fuses_layers && config_.flag("norm_before_fc"))
      return unsupported("norm_before_fc is set, and there are no layers to fuse (EAGLE-1)");
    if (const std::string act = config_.text("hidden_act"); !act.empty() && act != "silu")
      return unsupported(fmt::format("hidden_act is {}; silu is supported", kvasir::quoted(act)));
    return {};
  }

  // The layers that EAGLE-3 fuses, as many as fc reads: those of its reference where nothing is said.
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
    const bool ascending =
        std::adjacent_find(w_.points.begin(), w_.points.end(), std::greater_equal<>()) == w_.points.end();
    if (w_.points.empty() || w_.points.size() > kMostPoints || !ascending || w_.points.back() > layers)
      return corrupt(
          fmt::format("it fuses layers {}, and up to {} ascending ones of the model's {} are needed",
                      fmt::join(w_.points, ", "), kMostPoints, layers));
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
    KVASIR_RETURN_IF_ERROR(read_window());
    c.ropes = {LayerRope::kGlobal};
    c.rope_kind = RopeKind::kNeox;
    const double head_dim = number("head_dim", "head_dim", target.head_dim);
    if (!(head_dim >= 16 && head_dim <= kAttnMaxHeadDim))
      return unsupported(
          fmt::format("heads of {} values; 16 to {} are supported", head_dim, kAttnMaxHeadDim));
    c.head_dim = static_cast<uint32_t>(head_dim);
    KVASIR_RETURN_IF_ERROR(read_rope());
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

  // Only layer_types says that the layer has a window: many files give its size and do not use it.
  Status read_window() {
    w_.config.windows = {0};
    if (config_.text("layer_types") != "sliding_attention") return {};
    const double window = config_.number("sliding_window").value_or(0);
    if (!(window >= 1 && window <= 1e9 && window == std::floor(window)))
      return corrupt(fmt::format(
          "layer_types is sliding_attention, and sliding_window {}: 1 or more is needed", window));
    w_.config.windows = {static_cast<uint32_t>(window)};
    return {};
  }

  Status read_rope() {
    ModelConfig& c = w_.config;
    c.rope_dim = c.head_dim;
    for (const char* key : {"rope_dim", "value_dim"}) {
      const double size = config_.number(key).value_or(c.head_dim);
      if (size != c.head_dim)
        return unsupported(fmt::format("{} is {}, and heads have {} values: both the same is supported", key,
                                       size, c.head_dim));
    }
    if (const double part = config_.number("partial_rotary_factor").value_or(1); part != 1)
      return unsupported(fmt::format("partial_rotary_factor is {}; 1 is supported", part));
    c.rope_base = number("rope_theta", "rope_base", target_.config().rope_base);
    KVASIR_ASSIGN_OR_RETURN(HeadConfig::Rope rope, config_.rope(c.rope_dim, c.rope_base));
    c.rope_scaling = rope.scaling;
    w_.rope_factors = std::move(rope.factors);
    if (w_.rope_factors.empty()) w_.rope_factors = tensors_.vector("rope_freqs.weight", c.rope_dim / 2, true);
    return {};
  }

  void read_matrices() {
    const ModelConfig& c = w_.config;
    const uint32_t inputs = w_.attention_inputs();
    // F16: hidden states have values that are hundreds of times as large as their neighbours, whose group of
    // 32 would have nothing left of its own.
    w_.fc = tensors_.matrix("fc.weight", d_, w_.fuses_layers ? w_.feature_width() : 2 * d_, true);
    w_.fc_bias = tensors_.vector("fc.bias", d_, true);
    const std::string attention = layer_ + "self_attn.";
    w_.q = tensors_.matrix(attention + "q_proj.weight", c.q_dim(), inputs);
    w_.k = tensors_.matrix(attention + "k_proj.weight", c.kv_dim(), inputs);
    w_.v = tensors_.matrix(attention + "v_proj.weight", c.kv_dim(), inputs);
    w_.o = tensors_.matrix(attention + "o_proj.weight", d_, c.q_dim());
    w_.q_bias = tensors_.vector(attention + "q_proj.bias", c.q_dim(), true);
    w_.k_bias = tensors_.vector(attention + "k_proj.bias", c.kv_dim(), true);
    w_.v_bias = tensors_.vector(attention + "v_proj.bias", c.kv_dim(), true);
    w_.o_bias = tensors_.vector(attention + "o_proj.bias", d_, true);
    w_.gate = tensors_.matrix(layer_ + "mlp.gate_proj.weight", c.ffn_dim, d_);
    w_.up = tensors_.matrix(layer_ + "mlp.up_proj.weight", c.ffn_dim, d_);
    w_.down = tensors_.matrix(layer_ + "mlp.down_proj.weight", d_, c.ffn_dim);
  }

  void read_norms() {
    ModelConfig& c = w_.config;
    w_.ffn_norm = tensors_.vector(layer_ + "post_attention_layernorm.weight", d_);
    w_.q_norm = tensors_.vector(layer_ + "self_attn.q_norm.weight", c.head_dim, true);
    w_.k_norm = tensors_.vector(layer_ + "self_attn.k_norm.weight", c.head_dim, true);
    if (!w_.q_norm.empty()) c.head_norm = HeadNorm::kSharedWeights;
    if (!w_.fuses_layers) return;
    w_.embedding_norm = tensors_.vector(layer_ + "input_layernorm.weight", d_);
    w_.hidden_norm = tensors_.vector(layer_ + "hidden_norm.weight", d_);
    w_.output_norm = tensors_.vector("norm.weight", d_);
    if (config_.flag("norm_before_fc"))
      w_.features_norm = tensors_.vector("input_norm.weight", w_.feature_width());
    for (size_t i = 0; config_.flag("fc_norm") && i < w_.points.size(); ++i) {
      const std::vector<float> norm = tensors_.vector(fmt::format("fc_norm.{}.weight", i), d_);
      w_.layer_norms.insert(w_.layer_norms.end(), norm.begin(), norm.end());
    }
  }

  // Embeddings of the head's own are kept where they are not the target's: some rows tell, which quantisation
  // changes by little.
  void read_embedding() {
    constexpr const char* kName = "embed_tokens.weight";
    if (!tensors_.has(kName)) return;
    const uint32_t tokens = target_.config().vocab_size, rows = tensors_.rows_of(kName, d_);
    if (rows != 0 && rows < tokens)
      tensors_.fail(
          corrupt(fmt::format("tensor '{}' has {} rows, and the model {} tokens", kName, rows, tokens)));
    tensors_.ignore(kName);
    if (!tensors_.fault().ok()) return;
    constexpr uint32_t kSamples = 64;
    constexpr double kSame = 0.25;
    std::vector<float> theirs(d_);
    double distances = 0;
    for (uint32_t i = 0; i < kSamples; ++i) {
      const auto token = static_cast<uint32_t>(uint64_t{tokens} * i / kSamples);
      target_.read_embedding(static_cast<TokenId>(token), theirs.data());
      const std::vector<float> own = tensors_.row(kName, rows, d_, token);
      if (own.empty()) return;
      distances += distance(own, theirs);
    }
    if (distances / kSamples <= kSame) return;
    spdlog::info("the head has embeddings of its own, which are not the model's");
    std::vector<uint32_t> first(tokens);
    std::iota(first.begin(), first.end(), 0);
    w_.embedding = tensors_.some_rows(kName, rows, d_, first);
  }

  // |a - b| / |b|
  static double distance(const std::vector<float>& a, const std::vector<float>& b) {
    double apart = 0, length = 0;
    for (size_t i = 0; i < a.size(); ++i) {
      apart += (double{a[i]} - double{b[i]}) * (double{a[i]} - double{b[i]});
      length += double{b[i]} * double{b[i]};
    }
    if (apart == 0 || length == 0) return apart == 0 ? 0 : 1;
    return std::sqrt(apart / length);
  }

  void read_output() {
    std::vector<int64_t> tokens = tensors_.integers("d2t");
    for (size_t i = 0; i < tokens.size(); ++i) {
      if (__builtin_add_overflow(tokens[i], static_cast<int64_t>(i), &tokens[i])) tokens[i] = -1;
    }
    w_.output = guess_head(tensors_, "lm_head.weight", target_, tokens, frequent_);
  }

  static constexpr uint32_t kMostPoints = 8;

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
  KVASIR_ASSIGN_OR_RETURN(const HeadFile file, HeadFile::open(path));
  Result<EagleWeights> weights = EagleReader(file, target, frequent).read();
  if (weights.ok()) return weights;
  return Status(weights.status().code(), fmt::format("'{}': {}", file.path(), weights.message()));
}

}  // namespace kvasir
