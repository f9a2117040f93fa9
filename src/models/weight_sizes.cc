#include "models/weight_sizes.h"

namespace kvasir {
namespace {

uint64_t matrix_bytes(const PackedMatrix& m) {
  return uint64_t{m.panels()} * m.panel_bytes;
}

uint64_t matrix_macs(const PackedMatrix& m) {
  return uint64_t{m.n} * m.k;
}

}  // namespace

WeightSizes weight_sizes(const ModelWeights& weights) {
  WeightSizes sizes;
  for (const LayerWeights& l : weights.layers) {
    for (const PackedMatrix* m : {&l.q, &l.k, &l.v, &l.o, &l.gate, &l.up, &l.down}) {
      sizes.layer_bytes += matrix_bytes(*m);
      sizes.layer_macs += matrix_macs(*m);
    }
  }
  sizes.head_bytes = matrix_bytes(weights.head);
  sizes.head_macs = matrix_macs(weights.head);
  // Of a tied head, a token's row is one of a panel's columns.
  sizes.embedding_row_bytes =
      weights.tied ? weights.head.panel_bytes / kPanelCols : weights.embedding.row_bytes();
  return sizes;
}

}  // namespace kvasir
