#include "perf/perf_model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "perf/perf_model_rig.h"

namespace kvasir {
namespace {

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

TEST(PerfModel, ExpertsAreReadAsRowsChooseThem) {
  const PerfModel model(small_config(), weights_with_experts(), small_machine(2),
                        {.threads = 2, .kv_type = KvType::kF16, .max_rows = 64, .max_logit_rows = 16});
  const StepRows one[] = {{.rows = 1, .context = 99}}, many[] = {{.rows = 60, .context = 0}};
  // Two experts at 2 ns a value, beside the other matrices.
  EXPECT_NEAR(weights(model.predict(one, 0)), (4096 + 2 * 2048) * 2e-9, 1e-12);
  // All eight, each with a quarter of the rows: 1 ns and one per row.
  EXPECT_NEAR(weights(model.predict(many, 0)), 4096 * 61e-9 + 8 * 2048 * 16e-9, 1e-9);
}

// Of experts that no cache holds, what rows choose comes from memory, 6 ns a value later: two of a row, and
// of two rows 8 (1 - (6/8)^2) = 3.5, each with 4 / 3.5 rows.
TEST(PerfModel, ExpertsComeFromMemory) {
  HardwareProfile machine = small_machine(2);
  machine.reads = {{1 << 10, {1e12, 1e12}}, {1 << 14, {1e9, 1e9}}};
  machine.kernels->linear[0].memory = {8e-9, 9e-9};
  machine.kernels->memory_bytes = 1 << 14;
  WeightSizes w = weights_with_experts();
  w.expert_bytes = 8 * 2048;
  const PerfModel model(small_config(), w, machine,
                        {.threads = 2, .kv_type = KvType::kF16, .max_rows = 64, .max_logit_rows = 16});
  const StepRows one[] = {{.rows = 1, .context = 99}}, two[] = {{.rows = 2, .context = 99}};
  EXPECT_NEAR(weights(model.predict(one, 0)), (4096 + 2 * 2048) * 8e-9, 1e-12);
  EXPECT_NEAR(weights(model.predict(two, 0)), 4096 * 9e-9 + 3.5 * 2048 * (7 + 4 / 3.5) * 1e-9, 1e-12);
}

// A layer's router is a phase of its own; of many rows the threads wait for each other's choices.
TEST(PerfModel, RoutersAreWaitedFor) {
  HardwareProfile machine = small_machine(2);
  machine.barrier_seconds = 1 * kMicro;
  machine.kernels->begin_cached = machine.kernels->begin_memory = 5 * kMicro;
  const auto rest_of = [&](uint32_t experts, uint32_t rows) {
    ModelConfig c = small_config();
    c.mixture.router.experts = experts;
    const PerfModel model(c, weights_with_experts(), machine,
                          {.threads = 2, .kv_type = KvType::kF16, .max_rows = 64, .max_logit_rows = 16});
    const StepRows step[] = {{.rows = rows, .context = 0}};
    return part(model.predict(step, 0), StepPart::kRest);
  };
  EXPECT_NEAR(rest_of(8, 2) - rest_of(0, 2), 5 * kMicro, 1e-12);
  EXPECT_NEAR(rest_of(8, 3) - rest_of(0, 3), 6 * kMicro, 1e-12);
}

TEST(PerfModel, RowsBeyondTheTableGoOnLinearly) {
  const PerfModel model = small_model();
  const StepRows rows[] = {{.rows = 20, .context = 0}};
  EXPECT_NEAR(weights(model.predict(rows, 0)), 4096 * 21e-9, 1e-12);  // 1 ns and one per row
}

// Half of the layer's weights lie behind K and V. Of 30 rows, one wants logits: 21 leave them out, and
// attention.
TEST(PerfModel, RowsThatWantNothingEndWithTheLastKAndV) {
  WeightSizes w = small_weights();
  w.layer_macs = 2 * 64 * 32;
  w.last_macs = 64 * 32;
  const PerfModel model(small_config(), w, small_machine(2),
                        {.threads = 2, .max_rows = 64, .max_logit_rows = 64});
  const StepRows rows[] = {{.rows = 30, .context = 0}};
  const StepPrediction all = model.predict(rows, 30), one = model.predict(rows, 1),
                       none = model.predict(rows, 0);
  const double head = 5120 * 1e-9 * 6 / 5;  // 1 ns and one per row
  EXPECT_NEAR(weights(all) - weights(one), 2048 * 21e-9 + head * 29, 1e-12);
  EXPECT_NEAR(weights(all) - weights(none), 2048 * 22e-9 + head * 31, 1e-12);
  const double attention = (10 + 30 * (1 + 3.0)) * kMicro;  // one call, on each thread
  EXPECT_NEAR(part(all, StepPart::kAttention), attention, 1e-12);
  const double of_one = (10 + 30 * 1.1) * kMicro;
  EXPECT_NEAR(part(one, StepPart::kAttention), attention - (attention - of_one) * 21 / 29, 1e-12);
  EXPECT_NEAR(part(none, StepPart::kAttention), attention - attention * 22 / 30, 1e-12);
  EXPECT_NEAR(part(model.predict(rows, 22), StepPart::kAttention), attention, 1e-12) << "eight are too few";
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
  EXPECT_NEAR(part(model.predict(rows, 100), StepPart::kAttention), by_hand * kMicro, 1e-9);
}

// But for a thousandth: what rows leave out in the last layer counts as if no thread waited for another
// there.
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
    EXPECT_GE(model.predict(more, 1).seconds, seconds * (1 - 2e-3))
        << base[0].rows << " after " << base[0].context;
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

// Of 100 positions 64 are read with the row that came before: only their arithmetic is added.
TEST(PerfModel, SharedPrefixesAreReadOnce) {
  const PerfModel model = small_model();
  const StepRows rows[] = {{.rows = 1, .context = 99}, {.rows = 1, .context = 99, .shared = 64, .beside = 1}};
  const double first = 10 + 100 * 1.1, second = 10 + 64 * 0.1 + 36 * 1.1;
  EXPECT_NEAR(part(model.predict(rows, 0), StepPart::kAttention), (first + second) * kMicro, 1e-12);
}

// KV that comes from memory is waited for once by each sequence, and so are the tiles of 16 positions that
// its rows are stored to: positions 14 to 17 lie in two.
TEST(PerfModel, MemoryIsWaitedForOnce) {
  const auto attention = [](double begin, double open, const StepRows& rows) {
    HardwareProfile m = small_machine(2);
    m.kernels->attention[0].begin = {begin, begin};
    m.kernels->rows.open_f16 = open;
    const PerfModel model(small_config(), small_weights(), m, {.threads = 2, .kv_type = KvType::kF16});
    return part(model.predict({&rows, 1}, rows.rows), StepPart::kAttention);
  };
  const StepRows decode{.rows = 1, .context = 99}, prompt{.rows = 100, .context = 0};
  EXPECT_NEAR(attention(kMicro, 0, decode) - attention(0, 0, decode), kMicro, 1e-12);
  EXPECT_NEAR(attention(kMicro, 0, prompt) - attention(0, 0, prompt), kMicro, 1e-9);
  const StepRows few{.rows = 4, .context = 14};
  EXPECT_NEAR(attention(0, kMicro, few) - attention(0, 0, few), 2 * 16 * kMicro, 1e-9);
}

// Measured memory that caches hold as much of as of the weights has their rates; larger memory has those of
// nothing in cache.
TEST(PerfModel, RatesFromMemoryAreOfAWorkingSet) {
  HardwareProfile m = small_machine();
  m.reads = {{1 << 20, {1e12, 1e12}}, {1 << 24, {4e8, 4e8}}};
  m.kernels->linear[0].memory = {8e-9, 9e-9};
  WeightSizes w = small_weights();
  w.layer_bytes = 4 << 20;
  const auto seconds = [&](uint64_t bytes) {
    m.kernels->memory_bytes = bytes;
    const PerfModel model(small_config(), w, m, {.threads = 2, .kv_type = KvType::kF16});
    return weights(model.predict(std::vector<StepRows>{{.rows = 1, .context = 0}}, 0));
  };
  EXPECT_NEAR(seconds(w.layer_bytes + w.head_bytes), 4096 * 8e-9, 1e-12);
  EXPECT_LT(seconds(1 << 24), 4096 * 7e-9);
  EXPECT_GT(seconds(1 << 24), 4096 * 2e-9);
}

// Behind a window nothing is shared.
TEST(PerfModel, WindowsShareOnlyWhatIsSeenWhole) {
  ModelConfig c = small_config();
  c.windows = {50};
  const PerfModel model = small_model(c);
  const StepRows rows[] = {{.rows = 1, .context = 99}, {.rows = 1, .context = 99, .shared = 64, .beside = 1}};
  EXPECT_NEAR(part(model.predict(rows, 0), StepPart::kAttention), 2 * (10 + 50 * 1.1) * kMicro, 1e-12);
}

// A model whose row-wise work takes 1 ns a value, on 2 threads.
PerfModel rowwise_model(const WeightSizes& weights) {
  HardwareProfile m = small_machine(2);
  m.kernels->rows = {
      .norm = 1e-9, .quantize = 1e-9, .rope = 1e-9, .silu = 1e-9, .add = 1e-9, .store_f16 = 1e-9};
  m.kernels->linear = {{DType::kQ8_0, 0, {0, 0}, {0, 0}}};
  m.kernels->attention = {{KvType::kF16, 16, {0, 0}, {0, 0}, {0, 0}, {0, 0}}};
  return PerfModel(small_config(), weights, m, {.threads = 2, .kv_type = KvType::kF16, .max_rows = 64});
}

TEST(PerfModel, RowwiseWorkByHand) {
  const PerfModel model = rowwise_model(small_weights());
  const auto of = [&](uint32_t rows, uint32_t sequences) {
    return model.predict(std::vector<StepRows>(sequences, {.rows = rows, .context = 9}), 0);
  };
  // Both threads norm the one row (2 x 32 values, and quantise them); activation and quantisation of 64
  // values are shared. Two query heads and two KV heads of 16 turn, 32 values are stored, 32 of attention
  // quantised: in attention's two calls, one per thread.
  EXPECT_NEAR(part(of(1, 1), StepPart::kRest), (2 * 2 * 32 + 2 * 64 / 2.0) * 1e-9, 1e-18);
  EXPECT_NEAR(part(of(1, 1), StepPart::kAttention), (64 + 32 + 32) / 2.0 * 1e-9, 1e-18);
  // Two rows are normed by both threads, three by their own: two rows of one thread.
  EXPECT_NEAR(part(of(1, 2), StepPart::kRest), (2 * 128 + 2 * 64) * 1e-9, 1e-18);
  EXPECT_NEAR(part(of(1, 3), StepPart::kRest), (2 * 128 + 3 * 64) * 1e-9, 1e-18);
  // Rows of a prompt see one another: all are made ready before, two by one thread.
  EXPECT_NEAR(part(of(3, 1), StepPart::kRest), (2 * 128 + 3 * 64 + 2 * 96) * 1e-9, 1e-18);
  EXPECT_NEAR(part(of(3, 1), StepPart::kAttention), 3 * 32 / 2.0 * 1e-9, 1e-18);
}

// Behind a post-norm no thread norms for itself: one of the two threads norms and adds the row.
TEST(PerfModel, PostNormsShareTheRows) {
  WeightSizes weights = small_weights();
  weights.branch_norms = 2;
  const PerfModel model = rowwise_model(weights);
  const StepRows two[] = {{.rows = 1, .context = 9}, {.rows = 1, .context = 9}};
  EXPECT_NEAR(part(model.predict(two, 0), StepPart::kRest), (128 + 2 * 64 + 2 * 64) * 1e-9, 1e-18);
}

TEST(PerfModel, BarriersOfAStep) {
  HardwareProfile m = small_machine(2);
  m.barrier_seconds = 1;
  m.kernels->begin_cached = m.kernels->begin_memory = 100;
  const PerfModel model(small_config(), small_weights(), m, {.threads = 2, .kv_type = KvType::kF16});
  const auto rest = [&](std::vector<StepRows> rows, LogitRows logits) {
    return part(model.predict(rows, logits), StepPart::kRest);
  };
  // After the embedding and attention; four phases of matrices.
  EXPECT_DOUBLE_EQ(rest({{.rows = 1, .context = 9}}, 0), 402);
  // The head: a phase, before and after its rows are normed, and after the best are found.
  EXPECT_DOUBLE_EQ(rest({{.rows = 1, .context = 9}}, 1), 505);
  EXPECT_DOUBLE_EQ(rest({{.rows = 1, .context = 9}}, {1, 1}), 504);
  // Three rows: two norms and attention; a prompt also makes its rows ready first.
  EXPECT_DOUBLE_EQ(rest(std::vector<StepRows>(3, {.rows = 1, .context = 9}), 0), 403);
  EXPECT_DOUBLE_EQ(rest({{.rows = 3, .context = 9}}, 0), 404);
  // A long context is cut, and what is cut does not make its own row ready.
  EXPECT_DOUBLE_EQ(rest({{.rows = 1, .context = 2000}}, 0), 403);
}

// Whole rows of logits are written to memory, of the others the best are looked for.
TEST(PerfModel, LogitsAreWrittenOrLookedThrough) {
  HardwareProfile m = small_machine(2);
  m.reads = {{1, {1e9, 1e9}}};
  m.kernels->rows.scan = 1e-6;
  const PerfModel model(small_config(), small_weights(), m, {.threads = 2, .kv_type = KvType::kF16});
  const StepRows row[] = {{.rows = 4, .context = 9}};
  const auto seconds = [&](LogitRows logits) { return model.predict(row, logits).seconds; };
  EXPECT_NEAR(seconds({3, 2}) - seconds({3, 3}), 160e-6 / 2 - 2 * 4 * 160 / 1e9, 1e-12);
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

// Two rows that follow one cost what three together do more than one; of the longest call, that much once.
TEST(PerfModel, FurtherRowsAddTheirShareOfLongerCalls) {
  const PerfModel model = small_model();
  StepLoad extended, whole;
  for (StepLoad* load : {&extended, &whole}) model.add(*load, {.rows = 1, .context = 40}, 1);
  model.add(extended, {.rows = 1, .context = 99}, 1);
  extended.add_rows(2, model.further_row(99));
  model.add(whole, {.rows = 3, .context = 99}, 3);
  EXPECT_EQ(extended.rows, 4u);
  EXPECT_EQ(extended.logits.rows, 4u);
  EXPECT_NEAR(extended.attention[0].all, whole.attention[0].all, 1e-12);
  EXPECT_NEAR(extended.attention[0].longest, whole.attention[0].longest, 1e-12);
  EXPECT_NEAR(model.seconds(extended), model.seconds(whole), 1e-12);
}

TEST(PerfModel, RepeatedSequencesCostWhatSoManyDo) {
  const PerfModel model = small_model();
  StepLoad repeated, each;
  model.add(repeated, {.rows = 2, .context = 70}, {2, 1});
  repeated.repeat(3);
  for (int i = 0; i < 3; ++i) model.add(each, {.rows = 2, .context = 70}, {2, 1});
  EXPECT_EQ(repeated.sequences, 3u);
  EXPECT_EQ(repeated.logits.whole, 3u);
  EXPECT_NEAR(model.seconds(repeated), model.seconds(each), 1e-12);
}

TEST(PerfModel, AdaptsAndCountsBothErrors) {
  PerfModel model = small_model();
  const StepRows row[] = {{.rows = 1, .context = 99}};
  const double rated = model.predict(row, 1).seconds;
  for (int i = 0; i < 40; ++i) model.observe(model.predict(row, 1), 1.5 * rated);
  EXPECT_NEAR(model.predict(row, 1).seconds, 1.5 * rated, 0.02 * rated);
  const PerfModel::Accuracy a = model.accuracy();
  EXPECT_EQ(a.adapted.count, 40u);
  EXPECT_LT(a.adapted.p90, 0.06);
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
