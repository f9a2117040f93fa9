#include "models/weight_sizes.h"

#include <gtest/gtest.h>

#include <algorithm>

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
  const WeightSizes s = weight_sizes(w, {});
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
  const WeightSizes s = weight_sizes(w, {});
  EXPECT_EQ(s.shared_inputs, 1u);
  EXPECT_EQ(s.head_norms, 1u);
  EXPECT_EQ(s.branch_norms, 2u);
}

// Four experts of width 48, of which two are used, and a shared one of 16.
TEST(WeightSizes, CountExpertsApart) {
  ModelWeights w;
  w.layers = {layer(), layer()};
  MixtureWeights& m = w.layers[1].mixture;
  w.layers[1].ffn = {};
  m.router = matrix(4, 32, 64);
  m.router.data = reinterpret_cast<const std::byte*>(kNorm);
  for (ExpertMatrix* e : {&m.gate, &m.up}) *e = {.all = matrix(4 * 48, 32, 100), .n = 48, .stride = 3};
  m.down = {.all = matrix(4 * 32, 48, 150), .n = 32, .stride = 2};
  m.shared = {.gate = matrix(16, 32, 100), .up = matrix(16, 32, 100), .down = matrix(32, 16, 60)};
  w.head = matrix(100, 32, 100);
  ModelConfig c;
  c.mixture.router = {.experts = 4, .used = 2};
  const WeightSizes s = weight_sizes(w, c);
  const uint64_t attention = 4 * 100 + 2 * 100 + 100 + 2 * 200, dense = 3 * 100 + 3 * 100 + 2 * 150;
  const uint64_t expert = 3 * 100 + 3 * 100 + 2 * 150, shared = 100 + 100 + 2 * 60;
  EXPECT_EQ(s.layer_bytes, 2 * attention + dense + 64 + shared);
  EXPECT_EQ(s.expert_bytes, 4 * expert);
  EXPECT_EQ(s.active_expert_bytes, 2 * expert);
  EXPECT_EQ(s.layer_macs, 2u * (64 * 32 + 20 * 32 + 16 * 32 + 32 * 64) + 3 * 48 * 32 +
                              (4 * 32 + 3 * 16 * 32 + 2 * 3 * 48 * 32));
  const auto experts = std::count_if(s.matrices.begin(), s.matrices.end(),
                                     [](const auto& x) { return x.experts == 4 && x.used == 2; });
  EXPECT_EQ(experts, 2);  // gate and up of one shape, down
}

TEST(ExpertMatrices, LieOneBehindTheOther) {
  std::vector<std::byte> memory(4 * 6 * 100);
  std::vector<float> bias(4 * 96);
  ExpertMatrix up = {.all = matrix(4 * 96, 32, 100), .n = 48, .stride = 6, .first = 3, .bias = bias.data()};
  up.all.data = memory.data();  // behind a gate of the same size
  EXPECT_EQ(up.of(2).data, memory.data() + (2 * 6 + 3) * 100);
  EXPECT_EQ(up.of(2).n, 48u);
  EXPECT_EQ(up.of(2).panels(), 3u);
  EXPECT_EQ(up.bias_of(2), bias.data() + 2 * 96 + 48);
  EXPECT_EQ(up.all.part(23, 24).n, 16u);
}

TEST(WeightSizes, TiedRowsAreColumnsOfTheHead) {
  ModelWeights w;
  w.tied = true;
  w.head = matrix(100, 32, 640);
  EXPECT_EQ(weight_sizes(w, {}).embedding_row_bytes, 40u);
}

}  // namespace
}  // namespace kvasir
