#include "models/weight_sizes.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

// Only its shape is looked at.
PackedMatrix matrix(uint32_t n, uint32_t k, size_t panel_bytes) {
  return {.type = DType::kQ8_0, .n = n, .k = k, .panel_bytes = panel_bytes, .data = nullptr};
}

constexpr float kNorm[] = {1.0f};

LayerWeights layer() {
  LayerWeights l;
  l.attn_norm.weight = l.ffn_norm.weight = kNorm;
  l.q = matrix(64, 32, 100);
  l.k = matrix(20, 32, 100);  // two panels, the second part full
  l.v = matrix(16, 32, 100);
  l.o = matrix(32, 64, 200);
  l.ffn.gate = matrix(48, 32, 100);
  l.ffn.up = matrix(48, 32, 100);
  l.ffn.down = matrix(32, 48, 150);
  return l;
}

TEST(WeightSizes, CountPanelsAndProducts) {
  ModelWeights w;
  w.layers = {layer(), layer()};
  w.head = matrix(100, 32, 100);
  w.embedding = {.type = DType::kQ8_0, .shape = {32, 100, 1, 1}};
  const WeightSizes s = weight_sizes(w);
  EXPECT_EQ(s.layer_bytes, 2u * (4 * 100 + 2 * 100 + 100 + 2 * 200 + 3 * 100 + 3 * 100 + 2 * 150));
  EXPECT_EQ(s.layer_macs, 2u * (64 * 32 + 20 * 32 + 16 * 32 + 32 * 64 + 3 * 48 * 32));
  EXPECT_EQ(s.head_bytes, 7u * 100);
  EXPECT_EQ(s.head_macs, 100u * 32);
  EXPECT_EQ(s.embedding_row_bytes, 34u);
  EXPECT_EQ(s.shared_inputs, 0u);
}

TEST(WeightSizes, CountNormsOfEveryKind) {
  ModelWeights w;
  w.layers = {layer(), layer(), layer()};
  w.layers[0].ffn_norm = {};  // side by side
  w.layers[1].q_norm = kNorm;
  w.layers[2].post_attn_norm.weight = w.layers[2].post_ffn_norm.weight = kNorm;
  w.head = matrix(100, 32, 100);
  const WeightSizes s = weight_sizes(w);
  EXPECT_EQ(s.shared_inputs, 1u);
  EXPECT_EQ(s.head_norms, 1u);
  EXPECT_EQ(s.branch_norms, 2u);
}

TEST(WeightSizes, TiedRowsAreColumnsOfTheHead) {
  ModelWeights w;
  w.tied = true;
  w.head = matrix(100, 32, 640);
  EXPECT_EQ(weight_sizes(w).embedding_row_bytes, 40u);
}

}  // namespace
}  // namespace kvasir
