#include "models/bind_model.h"

#include <fmt/core.h>

namespace kvasir {
namespace {

using Need = TensorBinder::Need;

// One layer's tensors under their names in the file.
class LayerBinder {
 public:
  LayerBinder(TensorBinder& binder, const ModelConfig& config, uint32_t index)
      : b_(binder), c_(config), index_(index), prefix_(fmt::format("blk.{}.", index)) {}

  void bind(LayerWeights& l) {
    bind_norms(l);
    c_.mla ? bind_mla(l) : bind_qkv(l);
    bind_head_norms(l);
    b_.matrix(name("attn_output.weight"), c_.hidden_dim, c_.attn_dim(), l.o);
    b_.floats(name("attn_output.bias"), c_.hidden_dim, l.o_bias, Need::kOptional);
    if (c_.attention_sinks) b_.floats(name("attn_sinks.weight"), c_.heads, l.sinks, Need::kRequired);
    if (c_.has_experts(index_))
      bind_mixture(l.mixture);
    else
      bind_feed_forward("", c_.ffn_dim, l.ffn);
  }

 private:
  std::string name(std::string_view part) const { return fmt::format("{}{}", prefix_, part); }

  void norm(const char* part, NormWeights& out, Need need) {
    b_.floats(name(fmt::format("{}.weight", part)), c_.hidden_dim, out.weight, need);
    if (c_.norm == NormKind::kLayer && out.present())
      b_.floats(name(fmt::format("{}.bias", part)), c_.hidden_dim, out.bias, Need::kOptional);
  }

  void bind_norms(LayerWeights& l) {
    const BlockInputs inputs = c_.block_inputs;
    if (inputs != BlockInputs::kPlain) norm("attn_norm", l.attn_norm, Need::kRequired);
    if (inputs == BlockInputs::kNormed) norm(c_.ffn_norm, l.ffn_norm, Need::kRequired);
    if (inputs == BlockInputs::kMaybeSharedNorm) norm(c_.ffn_norm, l.ffn_norm, Need::kOptional);
    if (!c_.branch_norms) return;
    norm("post_attention_norm", l.post_attn_norm, Need::kRequired);
    norm("post_ffw_norm", l.post_ffn_norm, Need::kRequired);
  }

  void bind_head_norms(LayerWeights& l) {
    const std::string q = name("attn_q_norm.weight"), k = name("attn_k_norm.weight");
    switch (c_.head_norm) {
      case HeadNorm::kNone:
        return;
      case HeadNorm::kSharedWeights:
        b_.floats(q, c_.head_dim, l.q_norm, Need::kRequired);
        return b_.floats(k, c_.head_dim, l.k_norm, Need::kRequired);
      case HeadNorm::kMaybeOwnWeights: {
        const Need need = b_.has(q) || b_.has(k) ? Need::kRequired : Need::kOptional;
        b_.table(q, c_.head_dim, c_.heads, l.q_norm, need);
        return b_.table(k, c_.head_dim, c_.kv_heads, l.k_norm, need);
      }
      case HeadNorm::kWholeRow:
        b_.floats(q, c_.q_dim(), l.q_norm, Need::kRequired);
        return b_.floats(k, c_.kv_dim(), l.k_norm, Need::kRequired);
    }
  }

  // Matrices of their own, or one whose rows are those of q, k and v in this order.
  void bind_qkv(LayerWeights& l) {
    struct Part {
      const char* name;
      uint64_t rows;
      PackedMatrix& matrix;
      const float*& bias;
    };
    const std::string fused = name("attn_qkv.weight"), fused_bias = name("attn_qkv.bias");
    const uint64_t all = uint64_t{c_.q_dim()} + 2 * uint64_t{c_.kv_dim()};
    uint64_t first = 0;
    for (const Part& p :
         {Part{"attn_q", c_.q_dim(), l.q, l.q_bias}, Part{"attn_k", c_.kv_dim(), l.k, l.k_bias},
          Part{"attn_v", c_.kv_dim(), l.v, l.v_bias}}) {
      if (b_.has(fused))
        b_.some_rows(fused, first, p.rows, all, c_.hidden_dim, p.matrix);
      else
        b_.matrix(name(fmt::format("{}.weight", p.name)), p.rows, c_.hidden_dim, p.matrix);
      if (b_.has(fused_bias))
        b_.some_floats(fused_bias, first, p.rows, all, p.bias, Need::kRequired);
      else
        b_.floats(name(fmt::format("{}.bias", p.name)), p.rows, p.bias, Need::kOptional);
      first += p.rows;
    }
  }

  // Each head's matrices out of the latent on their own, that of the keys transposed; or, in older files, the
  // rows of both head by head in one.
  void bind_mla(LayerWeights& l) {
    const MlaConfig& m = *c_.mla;
    if (m.query > 0) {
      b_.matrix(name("attn_q_a.weight"), m.query, c_.hidden_dim, l.mla.q_a);
      b_.floats(name("attn_q_a_norm.weight"), m.query, l.mla.q_a_norm, Need::kRequired);
      b_.matrix(name("attn_q_b.weight"), c_.raw_q_dim(), m.query, l.q);
    } else {
      b_.matrix(name("attn_q.weight"), c_.raw_q_dim(), c_.hidden_dim, l.q);
    }
    b_.matrix(name("attn_kv_a_mqa.weight"), c_.head_dim, c_.hidden_dim, l.mla.kv_a);
    b_.floats(name("attn_kv_a_norm.weight"), m.latent, l.mla.kv_a_norm, Need::kRequired);
    const std::string both = name("attn_kv_b.weight");
    if (!b_.has(both)) {
      b_.stack(name("attn_k_b.weight"), c_.heads, m.latent, m.nope_dim, l.mla.k_b);
      b_.stack(name("attn_v_b.weight"), c_.heads, m.value_dim, m.latent, l.mla.v_b);
      return;
    }
    const uint64_t head = uint64_t{m.nope_dim} + m.value_dim, all = head * c_.heads;
    l.mla.k_b.assign(c_.heads, {});
    l.mla.v_b.assign(c_.heads, {});
    for (uint32_t h = 0; h < c_.heads; ++h) {
      b_.transposed_rows(both, h * head, m.nope_dim, all, m.latent, l.mla.k_b[h]);
      b_.some_rows(both, h * head + m.nope_dim, m.value_dim, all, m.latent, l.mla.v_b[h]);
    }
  }

  // Up alone; or gate and up of their own; or, where no gate is found, one matrix with the rows of both in
  // this order.
  void bind_feed_forward(const char* kind, uint64_t n, FeedForwardWeights& f) {
    const auto part = [&](const char* of, const char* what) {
      return name(fmt::format("ffn_{}{}.{}", of, kind, what));
    };
    const std::string gate = part("gate", "weight"), up = part("up", "weight");
    const uint64_t k = c_.hidden_dim;
    if (!c_.gated) {
      b_.matrix(up, n, k, f.up);
      b_.floats(part("up", "bias"), n, f.up_bias, Need::kOptional);
    } else if (!b_.has(gate) && is_twice(up, n)) {
      b_.some_rows(up, 0, n, 2 * n, k, f.gate);
      b_.some_rows(up, n, n, 2 * n, k, f.up);
    } else {
      b_.matrix(gate, n, k, f.gate);
      b_.matrix(up, n, k, f.up);
      b_.floats(part("gate", "bias"), n, f.gate_bias, Need::kOptional);
      b_.floats(part("up", "bias"), n, f.up_bias, Need::kOptional);
    }
    b_.matrix(part("down", "weight"), k, n, f.down);
    b_.floats(part("down", "bias"), k, f.down_bias, Need::kOptional);
  }

  void bind_mixture(MixtureWeights& m) {
    const uint32_t experts = c_.mixture.router.experts;
    const uint64_t k = c_.hidden_dim, n = c_.mixture.ffn_dim;
    b_.matrix(name("ffn_gate_inp.weight"), experts, k, m.router);
    b_.floats(name("ffn_gate_inp.bias"), experts, m.router_bias, Need::kOptional);
    b_.floats(name("exp_probs_b.bias"), experts, m.selection_bias, Need::kOptional);
    if (b_.has(name("ffn_gate_up_exps.weight"))) {
      bind_experts("gate_up", 2 * n, k, m.gate);
      m.up = m.gate;
      m.gate.n = m.up.n = static_cast<uint32_t>(n);
      m.up.first = m.up.n / kPanelCols;
    } else {
      bind_experts("gate", n, k, m.gate);
      bind_experts("up", n, k, m.up);
    }
    bind_experts("down", k, n, m.down);
    if (c_.mixture.shared_ffn_dim == 0) return;
    bind_feed_forward("_shexp", c_.mixture.shared_ffn_dim, m.shared);
    b_.matrix(name("ffn_gate_inp_shexp.weight"), 1, k, m.shared_router, Need::kOptional);
  }

  // One tensor of all experts, or as the first files of Mixtral have it, one of each.
  void bind_experts(const char* part, uint64_t n, uint64_t k, ExpertMatrix& m) {
    const uint32_t experts = c_.mixture.router.experts;
    const auto apart = [&](uint32_t e) { return name(fmt::format("ffn_{}.{}.weight", part, e)); };
    if (b_.has(apart(0)))
      b_.experts_apart(apart, experts, n, k, m.all);
    else
      b_.experts(name(fmt::format("ffn_{}_exps.weight", part)), experts, n, k, m.all);
    b_.table(name(fmt::format("ffn_{}_exps.bias", part)), n, experts, m.bias, Need::kOptional);
    m.n = static_cast<uint32_t>(n);
    m.stride = m.n / kPanelCols;
  }

  bool is_twice(const std::string& tensor, uint64_t rows) const {
    const TensorInfo* t = b_.file().find_tensor(tensor);
    return t != nullptr && t->view.shape[1] == 2 * rows;
  }

  TensorBinder& b_;
  const ModelConfig& c_;
  uint32_t index_;
  std::string prefix_;
};

// As many tokens as the tokenizer has. Rows of the embedding beyond those pad it to a round number: they are
// left out, so that no token without a text can be chosen. A file without a tokenizer has a token per row.
Result<uint32_t> vocabulary_size(const GgufMetadata& metadata, uint64_t rows) {
  constexpr uint64_t kMost = uint64_t{1} << 22;  // of the sampler
  KVASIR_ASSIGN_OR_RETURN(const std::vector<std::string>* tokens,
                          metadata.get_strings("tokenizer.ggml.tokens"));
  const uint64_t size = tokens != nullptr ? tokens->size() : rows;
  if (size == 0) return corrupt("tokenizer.ggml.tokens is empty");
  if (size > rows)
    return corrupt(fmt::format(
        "tensor 'token_embd.weight' has {} rows, and tokenizer.ggml.tokens {} tokens: each needs a row", rows,
        size));
  if (size > kMost)
    return unsupported(fmt::format("a vocabulary of {} tokens: at most {} are supported", size, kMost));
  return static_cast<uint32_t>(size);
}

void bind_rope_factors(TensorBinder& b, const ModelConfig& c, ModelWeights& w) {
  const uint64_t pairs = c.rope_dim / 2;
  b.floats("rope_freqs.weight", pairs, w.rope_factors, Need::kOptional);
  const std::string near = "rope_factors_short.weight", far = "rope_factors_long.weight";
  const bool needed = (c.rope_scaling.by_factors && w.rope_factors == nullptr) || b.has(near) || b.has(far);
  if (!needed) return;
  b.floats(near, pairs, w.rope_factors_short, Need::kRequired);
  b.floats(far, pairs, w.rope_factors_long, Need::kRequired);
  if (c.rope_scaling.original_context == 0)
    b.fail(
        corrupt(fmt::format("{}.rope.scaling.original_context_length is missing, which says where '{}' ends",
                            c.architecture, near)));
}

}  // namespace

void bind_model(TensorBinder& b, ModelConfig& c, ModelWeights& w) {
  const TensorInfo* embedding = b.find("token_embd.weight", Need::kRequired);
  if (embedding == nullptr) return;
  const auto& shape = embedding->view.shape;
  if (shape[0] != c.hidden_dim || shape[1] == 0 || shape[1] > (1u << 24) || shape[2] * shape[3] != 1)
    return b.fail(corrupt(
        fmt::format("tensor 'token_embd.weight' has shape ({}, {}, {}, {}); {}.embedding_length is {}",
                    shape[0], shape[1], shape[2], shape[3], c.architecture, c.hidden_dim)));
  const Result<uint32_t> vocabulary = vocabulary_size(b.metadata(), shape[1]);
  if (!vocabulary.ok()) return b.fail(vocabulary.status());
  c.vocab_size = *vocabulary;
  b.some_rows("output.weight", 0, c.vocab_size, shape[1], c.hidden_dim, w.head, Need::kOptional);
  w.tied = !w.head.present() && b.status().ok();
  if (w.tied)
    b.some_rows("token_embd.weight", 0, c.vocab_size, shape[1], c.hidden_dim, w.head);
  else
    b.raw_rows("token_embd.weight", c.vocab_size, w.embedding);
  b.floats("output_norm.weight", c.hidden_dim, w.output_norm.weight, Need::kRequired);
  if (c.norm == NormKind::kLayer)
    b.floats("output_norm.bias", c.hidden_dim, w.output_norm.bias, Need::kOptional);
  bind_rope_factors(b, c, w);
  w.layers.assign(c.layers, {});
  for (uint32_t l = 0; l < c.layers && b.status().ok(); ++l) LayerBinder(b, c, l).bind(w.layers[l]);
}

}  // namespace kvasir
