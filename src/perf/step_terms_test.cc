#include "perf/step_terms.h"

#include <gtest/gtest.h>

#include <random>

#include "perf/perf_model_rig.h"

namespace kvasir {
namespace {

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
  EXPECT_EQ(t.phases.count, 5);    // four of the layer, and the head
  EXPECT_EQ(t.barriers.count, 5);  // after the embedding, attention, and three of the head
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
  m.kernels->rows = {
      .norm = 1e-9, .quantize = 2e-9, .rope = 3e-9, .silu = 4e-9, .store_f16 = 5e-9, .scan = 6e-9};
  m.kernels->begin_cached = 1e-7;
  m.kernels->begin_memory = 3e-7;
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
      const auto wanted = static_cast<uint32_t>(random() % 16);
      const LogitRows logits(wanted, wanted / 2);
      StepTerms one;
      model.add_terms(rows, logits, one);
      model.add_terms(rows, logits, all);
      const double seconds = sum(model.predict(rows, logits).unadapted);
      EXPECT_NEAR(one.seconds(), seconds, 1e-12 * seconds) << rows.size() << " sequences, " << wanted;
      predicted += seconds;
    }
    EXPECT_NEAR(all.seconds(), predicted, 1e-10 * predicted);
    EXPECT_GT(all.logits.seconds(), 0);
    EXPECT_EQ(all.barriers.count > 0, threads > 1);
    EXPECT_GT(all.phases.seconds(), 0);
    EXPECT_GT(all.scans.seconds(), 0);
  }
}

}  // namespace
}  // namespace kvasir
