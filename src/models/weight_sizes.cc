#include "models/weight_sizes.h"

#include <algorithm>
#include <utility>

namespace kvasir {
namespace {

uint64_t matrix_bytes(const PackedMatrix& m) {
  return uint64_t{m.panels()} * m.panel_bytes;
}

uint64_t matrix_macs(const PackedMatrix& m) {
  return uint64_t{m.n} * m.k;
}

class Counter {
 public:
  explicit Counter(WeightSizes& sizes) : sizes_(sizes) {}

  void add(WeightSizes::Phase phase, const PackedMatrix& m) {
    if (m.n == 0) return;
    sizes_.layer_bytes += matrix_bytes(m);
    sizes_.layer_macs += matrix_macs(m);
    count({phase, m.type, m.n, m.k, 1, matrix_bytes(m)});
  }
  void add(WeightSizes::Phase phase, const ExpertMatrix& m, const RouterShape& router) {
    const PackedMatrix one = m.of(0);
    sizes_.expert_bytes += router.experts * matrix_bytes(one);
    sizes_.active_expert_bytes += router.used * matrix_bytes(one);
    sizes_.layer_macs += router.used * matrix_macs(one);
    count({phase, one.type, one.n, one.k, 1, matrix_bytes(one), router.experts, router.used});
  }

 private:
  void count(const WeightSizes::Matrices& m) {
    const auto same =
        std::find_if(sizes_.matrices.begin(), sizes_.matrices.end(), [&](const WeightSizes::Matrices& x) {
          return x.phase == m.phase && x.type == m.type && x.n == m.n && x.k == m.k && x.experts == m.experts;
        });
    if (same != sizes_.matrices.end())
      ++same->count;
    else
      sizes_.matrices.push_back(m);
  }

  WeightSizes& sizes_;
};

}  // namespace

std::vector<DType> WeightSizes::formats() const {
  std::vector<DType> out = {head_type};
  for (const Matrices& m : matrices) {
    if (std::find(out.begin(), out.end(), m.type) == out.end()) out.push_back(m.type);
  }
  return out;
}

WeightSizes weight_sizes(const ModelWeights& weights, const ModelConfig& config) {
  WeightSizes sizes;
  Counter counter(sizes);
  for (const LayerWeights& l : weights.layers) {
    using enum WeightSizes::Phase;
    for (const PackedMatrix* matrix : {&l.q, &l.k, &l.v, &l.mla.q_a, &l.mla.kv_a}) counter.add(kQkv, *matrix);
    for (const PackedMatrix& matrix : l.mla.k_b) counter.add(kQkv, matrix);
    const uint64_t before = sizes.layer_macs;
    for (const PackedMatrix& matrix : l.mla.v_b) counter.add(kAttnOut, matrix);
    counter.add(kAttnOut, l.o);
    const MixtureWeights& m = l.mixture;
    const FeedForwardWeights& ffn = m.present() ? m.shared : l.ffn;
    for (const PackedMatrix* matrix : {&m.router, &m.shared_router}) counter.add(kRouter, *matrix);
    for (const PackedMatrix* matrix : {&ffn.gate, &ffn.up}) counter.add(kGateUp, *matrix);
    counter.add(kDown, ffn.down);
    if (m.present()) {
      counter.add(kGateUp, m.gate, config.mixture.router);
      counter.add(kGateUp, m.up, config.mixture.router);
      counter.add(kDown, m.down, config.mixture.router);
    }
    sizes.last_macs = sizes.layer_macs - before;
    sizes.shared_inputs += l.attn_norm.present() && !l.ffn_norm.present();
    sizes.head_norms += l.q_norm != nullptr;
    sizes.branch_norms += l.post_attn_norm.present() + l.post_ffn_norm.present();
  }
  sizes.head_bytes = matrix_bytes(weights.head);
  sizes.head_macs = matrix_macs(weights.head);
  sizes.head_type = weights.head.type;
  sizes.head_n = weights.head.n;
  sizes.head_k = weights.head.k;
  sizes.embedding_packed = weights.tied;
  sizes.embedding_type = weights.tied ? weights.head.type : weights.embedding.type;
  // Of a tied head, a token's row is one of a panel's columns.
  sizes.embedding_row_bytes =
      weights.tied ? weights.head.panel_bytes / kPanelCols : weights.embedding.row_bytes();
  return sizes;
}

}  // namespace kvasir
