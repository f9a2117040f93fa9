#include "perf/perf_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvasir {
namespace {

constexpr double kMicro = 1e-6;

// One layer of 32 values with one query head per KV head; two matrices of 64 x 32 weights, a head of 160
// x 32.
ModelConfig small_config() {
  ModelConfig c;
  c.hidden_dim = 32;
  c.ffn_dim = 64;
  c.layers = 1;
  c.heads = 2;
  c.kv_heads = 2;
  c.head_dim = 16;
  c.rope_dim = 16;
  c.windows = {0};
  return c;
}

WeightSizes small_weights() {
  WeightSizes w;
  w.layer_bytes = 8192;
  w.head_bytes = 10'240;
  w.matrices = {{WeightSizes::Phase::kGateUp, DType::kQ8_0, 64, 32, 2, 4096}};
  w.head_type = w.embedding_type = DType::kQ8_0;
  w.head_n = 160;
  w.head_k = 32;
  return w;
}

// Everything comes from cache; a weight value takes 1 ns and as much again per row, a position 1 us and a
// tenth of it per query row, a call 10 us. Row-wise work takes nothing.
HardwareProfile small_machine(uint32_t threads = 2) {
  HardwareProfile m;
  m.threads = threads;
  m.clock_hz = 3e9;
  m.int8_macs = {1e11, 1e11 * threads};
  m.f32_macs = {1e10, 1e10 * threads};
  m.reads = {{1 << 20, {1e15, 1e15}}};
  KernelRates r;
  r.linear_rows = {1, 2};
  r.attention_rows = {1, 2};
  r.linear = {{DType::kQ8_0, 0, {2e-9, 3e-9}, {2e-9, 3e-9}}};
  r.attention = {{KvType::kF16,
                  16,
                  {10 * kMicro, 10 * kMicro},
                  {1.1 * kMicro, 1.2 * kMicro},
                  {1.1 * kMicro, 1.2 * kMicro}}};
  m.kernels = r;
  return m;
}

PerfModel small_model(const ModelConfig& config = small_config(), uint32_t threads = 2) {
  return PerfModel(config, small_weights(), small_machine(threads),
                   {.threads = threads, .kv_type = KvType::kF16, .max_rows = 64, .max_logit_rows = 16});
}

double part(const StepPrediction& p, StepPart which) {
  return p.parts[static_cast<size_t>(which)];
}
double weights(const StepPrediction& p) {
  return part(p, StepPart::kStream) + part(p, StepPart::kCompute);
}

TEST(PerfModel, OneDecodeByHand) {
  const PerfModel model = small_model();
  const StepRows row[] = {{.rows = 1, .context = 99}};
  // 2 * 64 * 32 values of the layer at 2 ns; panels: two each.
  EXPECT_NEAR(weights(model.predict(row, 0)), 4096 * 2e-9, 1e-12);
  // A head of ten panels, dealt out in twos: six and four. Six of five count.
  EXPECT_NEAR(weights(model.predict(row, 1)), 4096 * 2e-9 + 5120 * 2e-9 * 6 / 5, 2e-12);
  // Two KV heads at once, one per thread: a call over 100 positions.
  EXPECT_NEAR(part(model.predict(row, 1), StepPart::kAttention), (10 + 100 * 1.1) * kMicro, 1e-12);
  EXPECT_EQ(model.predict(row, 1).bound(), StepPart::kAttention);
  EXPECT_EQ(model.predict({}, 0).seconds, 0);
}

TEST(PerfModel, RowsBeyondTheTableGoOnLinearly) {
  const PerfModel model = small_model();
  const StepRows rows[] = {{.rows = 20, .context = 0}};
  EXPECT_NEAR(weights(model.predict(rows, 0)), 4096 * 21e-9, 1e-12);  // 1 ns and one per row
}

// 3 KV heads on 2 threads: two of the calls go one after the other.
TEST(PerfModel, ThreadsWaitForTheLastCall) {
  ModelConfig c = small_config();
  c.heads = c.kv_heads = 3;
  const PerfModel model = small_model(c);
  const StepRows row[] = {{.rows = 1, .context = 99}};
  EXPECT_NEAR(part(model.predict(row, 0), StepPart::kAttention), 2 * 120 * kMicro, 1e-12);
}

TEST(PerfModel, WindowsBoundWhatIsSeen) {
  ModelConfig c = small_config();
  c.windows = {50};
  const PerfModel model = small_model(c);
  const StepRows row[] = {{.rows = 1, .context = 999}};
  EXPECT_NEAR(part(model.predict(row, 0), StepPart::kAttention), (10 + 50 * 1.1) * kMicro, 1e-12);
}

// A prompt of 100 tokens is calls of 96 and 4 query rows, over 96 and 100 positions.
TEST(PerfModel, PromptsAreCutInCalls) {
  const PerfModel model = small_model();
  const StepRows rows[] = {{.rows = 100, .context = 0}};
  const double by_hand = 10 + 96 * (1 + 9.6) + 10 + 100 * (1 + 0.4);
  EXPECT_NEAR(part(model.predict(rows, 0), StepPart::kAttention), by_hand * kMicro, 1e-9);
}

TEST(PerfModel, MoreIsNeverFaster) {
  ModelConfig c = small_config();
  c.windows = {0, 700, 0, 700, 700};
  c.heads = 6;
  c.kv_heads = 3;
  const PerfModel model = small_model(c);
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    std::vector<StepRows> base(1 + random() % 4);
    for (StepRows& s : base)
      s = {.rows = 1 + static_cast<uint32_t>(random() % 60),
           .context = static_cast<uint32_t>(random() % 5000)};
    const double seconds = model.predict(base, 1).seconds;
    std::vector<StepRows> more = base;
    ++more[0].rows;
    EXPECT_GE(model.predict(more, 1).seconds, seconds) << base[0].rows << " after " << base[0].context;
    more = base;
    ++more[0].context;
    EXPECT_GE(model.predict(more, 1).seconds, seconds * (1 - 1e-12))
        << base[0].rows << " after " << base[0].context;
    EXPECT_GE(model.predict(base, 2).seconds, seconds);
  }
}

TEST(PerfModel, MostRowsIsTheLastThatFits) {
  const PerfModel model = small_model();
  StepLoad decodes;
  for (int i = 0; i < 3; ++i) model.add(decodes, {.rows = 1, .context = 200}, 1);
  const double target = model.seconds(decodes) + 500 * kMicro;
  const uint32_t rows = model.most_rows(decodes, 40, 1000, target);
  ASSERT_GT(rows, 0u);
  ASSERT_LT(rows, 1000u);
  const auto with = [&](uint32_t n) {
    StepLoad load = decodes;
    model.add(load, {.rows = n, .context = 40}, 1);
    return model.seconds(load);
  };
  EXPECT_LE(with(rows), target);
  EXPECT_GT(with(rows + 1), target);
  EXPECT_EQ(model.most_rows(decodes, 40, rows - 1, target), rows - 1);
  EXPECT_EQ(model.most_rows(decodes, 40, 1000, model.seconds(decodes)), 0u);
  EXPECT_EQ(model.most_rows(decodes, 40, 0, target), 0u);
}

// Weights that the last cache does not hold take the rate from memory.
TEST(PerfModel, WeightsBeyondTheCacheComeFromMemory) {
  HardwareProfile m = small_machine();
  m.reads = {{1 << 10, {1e12, 1e12}}, {1 << 12, {4e8, 4e8}}};
  m.kernels->linear[0].memory = {8e-9, 9e-9};
  const PerfModel model(small_config(), small_weights(), m, {.threads = 2, .kv_type = KvType::kF16});
  const StepPrediction p = model.predict(std::vector<StepRows>{{.rows = 1, .context = 0}}, 0);
  EXPECT_NEAR(weights(p), 4096 * 8e-9, 1e-12);
  EXPECT_GT(part(p, StepPart::kStream), part(p, StepPart::kCompute));
}

TEST(PerfModel, AdaptsAndCountsBothErrors) {
  PerfModel model = small_model();
  const StepRows row[] = {{.rows = 1, .context = 99}};
  const double rated = model.predict(row, 1).seconds;
  for (int i = 0; i < 40; ++i) model.observe(model.predict(row, 1), 1.5 * rated);
  EXPECT_NEAR(model.predict(row, 1).seconds, 1.5 * rated, 0.02 * rated);
  const PerfModel::Accuracy a = model.accuracy();
  EXPECT_EQ(a.adapted.count, 40u);
  EXPECT_LT(a.adapted.p90, 0.05);
  EXPECT_NEAR(a.unadapted.median, 1 / 3.0, 1e-9);
  EXPECT_NEAR(a.unadapted.bias, -1 / 3.0, 1e-9);
}

TEST(PerfModel, WithoutKernelRatesTheRooflineStandsIn) {
  HardwareProfile m = small_machine();
  m.kernels.reset();
  const PerfModel model(small_config(), small_weights(), m, {.threads = 2, .kv_type = KvType::kInt8});
  const StepPrediction p = model.predict(std::vector<StepRows>{{.rows = 8, .context = 100}}, 1);
  for (uint32_t i = 1; i < kStepParts; ++i)
    EXPECT_GT(p.parts[i], 0) << step_part_name(static_cast<StepPart>(i));
}

}  // namespace
}  // namespace kvasir
