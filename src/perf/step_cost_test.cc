#include "perf/step_cost.h"

#include <gtest/gtest.h>

namespace kvasir {
namespace {

// Two layers, one of them with a window of 4; 4 query heads and 2 KV heads of 8 values: a token's K and V
// take 2 * 8 * 2 * 2 = 64 bytes per layer.
ModelConfig small_config() {
  ModelConfig c;
  c.layers = 2;
  c.heads = 4;
  c.kv_heads = 2;
  c.head_dim = 8;
  c.windows = {0, 4};
  return c;
}

constexpr WeightSizes kWeights = {.layer_bytes = 10'000,
                                  .head_bytes = 3'000,
                                  .embedding_row_bytes = 20,
                                  .layer_macs = 7'000,
                                  .last_macs = 1'500,
                                  .head_macs = 2'000};

StepCost cost_of(std::vector<StepRows> rows, uint32_t logit_rows) {
  return step_cost(small_config(), kWeights, rows, logit_rows);
}

TEST(StepCost, PrefillOfThreeTokens) {
  const StepCost c = cost_of({{.rows = 3, .context = 0}}, 1);
  EXPECT_EQ(c.weight_bytes, 10'000u + 3'000 + 3 * 20);
  EXPECT_EQ(c.kv_read_bytes, 2u * 3 * 64);
  EXPECT_EQ(c.kv_write_bytes, 2u * 3 * 64);
  EXPECT_EQ(c.linear_macs, 3u * 7'000 - 2 * 1'500 + 2'000);
  EXPECT_EQ(c.attention_macs, ((1u + 2 + 3) + (1 + 2 + 3) / 3) * 4 * 8 * 2);
  EXPECT_EQ(c.read_bytes(), c.weight_bytes + c.kv_read_bytes);
}

// Eight experts of 100 bytes in each of three layers, of which a row uses two: two rows choose 8 (1 -
// 0.75^2).
TEST(StepCost, ExpertsThatRowsAreExpectedToChoose) {
  WeightSizes w = kWeights;
  w.matrices = {{.phase = WeightSizes::Phase::kDown, .count = 3, .bytes = 100, .experts = 8, .used = 2}};
  const auto bytes = [&](uint32_t rows) {
    const StepRows one = {.rows = rows, .context = 0};
    return step_cost(small_config(), w, {&one, 1}, 0).weight_bytes - 20 * rows - 10'000;
  };
  EXPECT_EQ(bytes(1), 3u * 2 * 100);
  EXPECT_EQ(bytes(2), 1050u);
  EXPECT_EQ(bytes(500), 3u * 8 * 100);
}

TEST(StepCost, ChunkWithoutLogitsReadsNoHead) {
  const StepCost c = cost_of({{.rows = 1, .context = 0}}, 0);
  EXPECT_EQ(c.weight_bytes, 10'000u + 20);
  EXPECT_EQ(c.linear_macs, 7'000u - 1'500);
  EXPECT_EQ(c.attention_macs, 1u * 4 * 8 * 2);  // of the first layer
}

TEST(StepCost, WindowBoundsWhatOneTokenReads) {
  const StepCost c = cost_of({{.rows = 1, .context = 9}}, 1);
  EXPECT_EQ(c.kv_read_bytes, (10u + 4) * 64);
  EXPECT_EQ(c.attention_macs, (10u + 4) * 4 * 8 * 2);
}

// Positions 2 .. 6: the windowed layer's rows see 3, 4, 4, 4 and 4 positions, together 0 .. 6.
TEST(StepCost, ChunkThatFillsTheWindow) {
  const StepCost c = cost_of({{.rows = 5, .context = 2}}, 5);
  EXPECT_EQ(c.attention_macs, ((3u + 4 + 5 + 6 + 7) + (3 + 4 + 4 + 4 + 4)) * 4 * 8 * 2);
  EXPECT_EQ(c.kv_read_bytes, (7u + 7) * 64);
}

// Positions 6 and 7: the windowed layer's first row sees 3 .. 6, the second 4 .. 7.
TEST(StepCost, ChunkBeyondTheWindow) {
  const StepCost c = cost_of({{.rows = 2, .context = 6}}, 2);
  EXPECT_EQ(c.attention_macs, ((7u + 8) + (4 + 4)) * 4 * 8 * 2);
  EXPECT_EQ(c.kv_read_bytes, (8u + 5) * 64);
}

TEST(StepCost, BatchReadsWeightsOnce) {
  const StepCost one = cost_of({{.rows = 1, .context = 2}}, 1);
  const StepCost two = cost_of({{.rows = 1, .context = 2}, {.rows = 1, .context = 2}}, 2);
  EXPECT_EQ(two.weight_bytes, one.weight_bytes + 20);
  EXPECT_EQ(two.kv_read_bytes, 2 * one.kv_read_bytes);
  EXPECT_EQ(two.linear_macs, 2 * one.linear_macs);
  EXPECT_EQ(two.attention_macs, 2 * one.attention_macs);
}

TEST(StepCost, NothingCostsNothing) {
  const StepCost c = cost_of({{.rows = 0, .context = 5}}, 0);
  EXPECT_EQ(c.read_bytes() + c.kv_write_bytes + c.linear_macs + c.attention_macs, 0u);
}

TEST(StepCost, SumsAreByPart) {
  StepCost sum = cost_of({{.rows = 1, .context = 2}}, 1);
  sum += cost_of({{.rows = 1, .context = 3}}, 1);
  EXPECT_EQ(sum.weight_bytes, 2u * (10'000 + 3'000 + 20));
  EXPECT_EQ(sum.kv_read_bytes, (3u + 3 + 4 + 4) * 64);
  EXPECT_EQ(sum.linear_macs, 2u * 9'000);
  EXPECT_EQ(sum.attention_macs, (3u + 3 + 4 + 4) * 4 * 8 * 2);
  EXPECT_EQ(sum.kv_write_bytes, 2u * 2 * 64);
}

HardwareProfile small_machine() {
  HardwareProfile m;
  m.threads = 2;
  m.int8_macs = {100, 200};
  m.f32_macs = {10, 20};
  m.reads = {{1000, {50, 80}}, {4000, {10, 20}}};
  return m;
}

TEST(StepFloor, BytesAtTheRateOfOneStepsWorkingSet) {
  const StepCost cost = {
      .weight_bytes = 7000, .kv_read_bytes = 1000, .linear_macs = 400, .attention_macs = 40};
  const StepFloor two = step_floor(cost, small_machine(), 2, 2);  // 4000 bytes a step
  EXPECT_DOUBLE_EQ(two.read_seconds, 8000.0 / 20);
  EXPECT_DOUBLE_EQ(two.compute_seconds, 400.0 / 200 + 40.0 / 20);
  EXPECT_TRUE(two.memory_bound());
  EXPECT_DOUBLE_EQ(two.seconds(), 400);
  EXPECT_DOUBLE_EQ(step_floor(cost, small_machine(), 2, 8).read_seconds, 8000.0 / 80);
  EXPECT_DOUBLE_EQ(step_floor(cost, small_machine(), 1, 2).read_seconds, 8000.0 / 10);
}

TEST(StepFloor, TheLargerBounds) {
  const StepFloor floor = step_floor({.weight_bytes = 100, .linear_macs = 4000}, small_machine(), 1);
  EXPECT_FALSE(floor.memory_bound());
  EXPECT_DOUBLE_EQ(floor.seconds(), 40);
}

// A byte per value, and per KV head a scale for K and one for V.
TEST(StepCost, Int8KvCountsItsScales) {
  const std::vector<StepRows> rows = {{.rows = 1, .context = 10}};
  const ModelConfig config = small_config();
  const StepCost f16 = step_cost(config, kWeights, rows, 0);
  const StepCost int8 = step_cost(config, kWeights, rows, 0, KvType::kInt8);
  const uint64_t layers = config.windows.size();
  EXPECT_EQ(f16.kv_write_bytes, layers * config.kv_dim() * 4);
  EXPECT_EQ(int8.kv_write_bytes, layers * (config.kv_dim() * 2 + config.kv_heads * 8));
  EXPECT_EQ(int8.kv_read_bytes * f16.kv_write_bytes, f16.kv_read_bytes * int8.kv_write_bytes);
}

}  // namespace
}  // namespace kvasir
