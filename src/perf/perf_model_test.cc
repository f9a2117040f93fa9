#include "perf/perf_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "perf/perf_model_rig.h"

namespace kvasir {
namespace {

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

// Eight experts of 64 x 32 in a layer, of which a row uses two.
WeightSizes weights_with_experts() {
  WeightSizes w = small_weights();
  w.matrices.push_back({WeightSizes::Phase::kDown, DType::kQ8_0, 64, 32, 1, 2048, 8, 2});
  return w;
}

TEST(PerfModel, ExpertsAreReadAsRowsChooseThem) {
  const PerfModel model(small_config(), weights_with_experts(), small_machine(2),
                        {.threads = 2, .kv_type = KvType::kF16, .max_rows = 64, .max_logit_rows = 16});
  const StepRows one[] = {{.rows = 1, .context = 99}}, many[] = {{.rows = 60, .context = 0}};
  // Two experts at 2 ns a value, beside the other matrices.
  EXPECT_NEAR(weights(model.predict(one, 0)), (4096 + 2 * 2048) * 2e-9, 1e-12);
  // All eight, each with a quarter of the rows: 1 ns and one per row.
  EXPECT_NEAR(weights(model.predict(many, 0)), 4096 * 61e-9 + 8 * 2048 * 16e-9, 1e-9);
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

double sum(const StepSeconds& parts) {
  double all = 0;
  for (const double part : parts) all += part;
  return all;
}

// One decode after 99 tokens, by hand as above.
TEST(StepTerms, RatesTimesWorkOfOneDecode) {
  StepTerms t;
  small_model().add_terms(std::vector<StepRows>{{.rows = 1, .context = 99}}, 1, t);
  ASSERT_EQ(t.linear.size(), 2u);
  EXPECT_FALSE(t.linear[0].head);
  EXPECT_EQ(t.linear[0].values, 4096);
  EXPECT_EQ(t.linear[0].uneven, 1);
  EXPECT_NEAR(t.linear[0].cached, 2e-9, 1e-18);
  EXPECT_TRUE(t.linear[1].head);
  EXPECT_EQ(t.linear[1].values, 5120);
  EXPECT_DOUBLE_EQ(t.linear[1].uneven, 1.2);
  EXPECT_EQ(t.calls.count, 2);  // one for each KV head
  EXPECT_NEAR(t.calls.each, 10 * kMicro, 1e-15);
  EXPECT_EQ(t.positions.count, 200);
  EXPECT_NEAR(t.positions.each, 1.1 * kMicro, 1e-15);
  EXPECT_NEAR(t.waiting, 0, 1e-15);
  EXPECT_EQ(t.threads, 2);
  EXPECT_EQ(t.barriers.count, 8);
}

// With every part at work the terms of any steps add up to their predictions.
TEST(StepTerms, AddUpToThePredictions) {
  ModelConfig c = small_config();
  c.windows = {0, 700, 0};
  c.layers = c.heads = c.kv_heads = 3;
  HardwareProfile m = small_machine(2);
  m.barrier_seconds = 1e-7;
  m.reads = {{1 << 10, {1e12, 1.5e12}}, {1 << 14, {4e8, 6e8}}};
  m.kernels->linear[0].memory = {8e-9, 9e-9};
  m.kernels->rows = {.norm = 1e-9, .quantize = 2e-9, .rope = 3e-9, .silu = 4e-9, .store_f16 = 5e-9};
  for (const uint32_t threads : {1u, 2u}) {
    const PerfModel model(
        c, weights_with_experts(), m,
        {.threads = threads, .kv_type = KvType::kF16, .max_rows = 64, .max_logit_rows = 16});
    StepTerms all;
    double predicted = 0;
    std::mt19937 random(2);
    for (int i = 0; i < 20; ++i) {
      std::vector<StepRows> rows(1 + random() % 3);
      for (StepRows& s : rows)
        s = {.rows = 1 + static_cast<uint32_t>(random() % 20),
             .context = static_cast<uint32_t>(random() % 3000)};
      const auto logits = static_cast<uint32_t>(random() % 16);
      StepTerms one;
      model.add_terms(rows, logits, one);
      model.add_terms(rows, logits, all);
      const double seconds = sum(model.predict(rows, logits).unadapted);
      EXPECT_NEAR(one.seconds(), seconds, 1e-12 * seconds) << rows.size() << " sequences, " << logits;
      predicted += seconds;
    }
    EXPECT_NEAR(all.seconds(), predicted, 1e-10 * predicted);
    EXPECT_GT(all.logits.seconds(), 0);
    EXPECT_EQ(all.barriers.count, threads == 1 ? 0 : 20 * 3 * 8);
  }
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
