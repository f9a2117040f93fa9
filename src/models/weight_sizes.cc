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

void count_matrix(WeightSizes::Phase phase, const PackedMatrix& m, std::vector<WeightSizes::Matrices>& list) {
  const auto same = std::find_if(list.begin(), list.end(), [&](const WeightSizes::Matrices& x) {
    return x.phase == phase && x.type == m.type && x.n == m.n && x.k == m.k;
  });
  if (same != list.end())
    ++same->count;
  else
    list.push_back({phase, m.type, m.n, m.k, 1, matrix_bytes(m)});
}

}  // namespace

std::vector<DType> WeightSizes::formats() const {
  std::vector<DType> out = {head_type};
  for (const Matrices& m : matrices) {
    if (std::find(out.begin(), out.end(), m.type) == out.end()) out.push_back(m.type);
  }
  return out;
}

WeightSizes weight_sizes(const ModelWeights& weights) {
  WeightSizes sizes;
  for (const LayerWeights& l : weights.layers) {
    using enum WeightSizes::Phase;
    const auto count = [&](WeightSizes::Phase phase, const PackedMatrix& m) {
      if (m.n == 0) return;
      sizes.layer_bytes += matrix_bytes(m);
      sizes.layer_macs += matrix_macs(m);
      count_matrix(phase, m, sizes.matrices);
    };
    for (const PackedMatrix* m : {&l.q, &l.k, &l.v, &l.mla.q_a, &l.mla.kv_a}) count(kQkv, *m);
    for (const PackedMatrix& m : l.mla.k_b) count(kQkv, m);
    for (const PackedMatrix& m : l.mla.v_b) count(kAttnOut, m);
    count(kAttnOut, l.o);
    for (const PackedMatrix* m : {&l.ffn.gate, &l.ffn.up}) count(kGateUp, *m);
    count(kDown, l.ffn.down);
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
