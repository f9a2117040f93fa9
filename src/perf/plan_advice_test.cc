#include "perf/plan_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "perf/plan_derivation.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

// As in plan_test.cc: a step of one reads for 64 s, and computes for 36 s a row.
PlanInput small() {
  PlanInput in;
  ModelShape& s = in.shape;
  s.vocab = 10, s.hidden = 4, s.ffn = 6, s.layers = 2, s.heads = 2, s.kv_heads = 1, s.head_dim = 2;
  s.windows = {0, 0};
  s.name = "small";
  in.machine.name = "slow";
  in.machine.kind = MachineSpec::Kind::kGpu;
  in.machine.bandwidth = 10;
  in.machine.peaks = {5, 10, 20};
  in.machine.memory_bytes = 1000;
  in.context = in.prompt = 5;
  return in;
}

const PlanAdvice* find(const std::vector<PlanAdvice>& advice, std::string_view id) {
  const auto it = std::find_if(advice.begin(), advice.end(), [&](const PlanAdvice& a) { return a.id == id; });
  return it == advice.end() ? nullptr : &*it;
}

TEST(PlanAdvice, ObjectiveIsTheGoalMissedByMost) {
  EXPECT_EQ(plan_objective(small(), {}), PlanObjective::kTpot);
  EXPECT_EQ(plan_objective(small(), {.ttft_seconds = 100}), PlanObjective::kTtft);
  // 152 / 100 against 64 / 10.
  EXPECT_EQ(plan_objective(small(), {.ttft_seconds = 100, .tpot_seconds = 10}), PlanObjective::kTpot);
  EXPECT_EQ(plan_objective(small(), {.users = 4}), PlanObjective::kTpot);    // four fit
  EXPECT_EQ(plan_objective(small(), {.users = 5}), PlanObjective::kMemory);  // 1040 of 1000 bytes
}

TEST(PlanAdvice, OutcomeSaysWhatIsMet) {
  const PlanOutcome o = plan_outcome(small(), {.users = 5, .ttft_seconds = 152, .tpot_seconds = 100});
  EXPECT_TRUE(o.ttft_met);
  EXPECT_FALSE(o.tpot_met);  // 5 x 36 s
  EXPECT_FALSE(o.users_met);
  EXPECT_EQ(o.batch, 5u);
  EXPECT_DOUBLE_EQ(o.tpot, 180);
  EXPECT_DOUBLE_EQ(o.memory_bytes, 1040);
}

TEST(PlanAdvice, EveryGainIsAPlanOfItsOwn) {
  const auto advice = plan_advice(small(), {}, {});
  // As Q8_0 the matrices read for 10.2 + 15.3 + 4.25 s; as Q4_K_M they compute for 9.6 + 14.4 + 4 s.
  ASSERT_NE(find(advice, "weights_Q8_0"), nullptr);
  EXPECT_DOUBLE_EQ(find(advice, "weights_Q8_0")->gain, 64 / 37.75);
  ASSERT_NE(find(advice, "weights_Q4_K_M"), nullptr);
  EXPECT_DOUBLE_EQ(find(advice, "weights_Q4_K_M")->gain, 64.0 / 36);
  // A head of two values: int8 with its scales would be larger.
  EXPECT_EQ(find(advice, "kv_int8"), nullptr);
  // Nothing to limit, and no more threads.
  EXPECT_EQ(find(advice, "batch_limit"), nullptr);
  EXPECT_EQ(find(advice, "threads"), nullptr);
  // Sharing a prefix does not make tokens faster; it comes last.
  ASSERT_NE(find(advice, "shared_prefix"), nullptr);
  EXPECT_DOUBLE_EQ(find(advice, "shared_prefix")->gain, 1);
  EXPECT_LT(find(advice, "shared_prefix")->after.ttft, 152);
  EXPECT_TRUE(std::is_sorted(advice.begin(), advice.end(),
                             [](const PlanAdvice& a, const PlanAdvice& b) { return a.gain > b.gain; }));
}

TEST(PlanAdvice, LimitsTheBatchToTheTimePerToken) {
  const auto advice = plan_advice(small(), {.users = 4, .tpot_seconds = 108}, {});
  const PlanAdvice* limit = find(advice, "batch_limit");
  ASSERT_NE(limit, nullptr);
  EXPECT_EQ(limit->how, "--max-num-seqs 3");
  EXPECT_DOUBLE_EQ(limit->gain, 144.0 / 108);
  EXPECT_TRUE(limit->after.tpot_met);
  EXPECT_FALSE(limit->after.users_met);
}

TEST(PlanAdvice, ShortensTheContextUntilTheGoalsAreMet) {
  PlanInput in;
  in.shape = *shape_by_name("Llama 2 7B");
  in.machine = *machine_by_name("RTX 4090");
  const PlanGoals goals{.users = 10};
  const auto advice = plan_advice(in, goals, {});
  const PlanAdvice* context = find(advice, "context");
  ASSERT_NE(context, nullptr);
  // (24e9 - 2 * 6738149376) / 10 / 524288 bytes a token: 2,007 positions.
  EXPECT_EQ(context->how, "--max-model-len 2007");
  EXPECT_TRUE(context->after.all_met());
  const PlanAdvice* kv = find(advice, "kv_int8");
  ASSERT_NE(kv, nullptr);
  EXPECT_GT(kv->gain, 1.3);
  EXPECT_TRUE(std::any_of(advice.begin(), advice.end(),
                          [](const PlanAdvice& a) { return a.id.starts_with("machine_"); }));
}

TEST(PlanAdvice, AllThreads) {
  HardwareProfile p;
  p.cpu = "two threads";
  p.threads = 2;
  p.int8_macs = {100, 200};
  p.f32_macs = {10, 20};
  p.reads = {{1000, {10, 20}}};
  PlanInput in = small();
  const MachineSpec two = machine_from_profile(p, 1000, "here");
  in.machine = with_threads(two, 1);
  const auto advice = plan_advice(in, {}, {.whole_machine = two});
  const PlanAdvice* threads = find(advice, "threads");
  ASSERT_NE(threads, nullptr);
  EXPECT_EQ(threads->how, "--threads 2");
  EXPECT_DOUBLE_EQ(threads->gain, 2);
}

TEST(PlanSpeculation, PaysWhereComputingHasRoom) {
  // A verification of two rows: 19.2 + 16 + 28.8 + 8 s compute, reading attention once more position: 72 is
  // 2 x 36 and attention of positions 5 and 6 computes 17.6 s.
  const PlanSpeculation none = plan_speculation(small(), 1, 0.1);
  EXPECT_EQ(none.best(), nullptr);
  EXPECT_EQ(none.rows[0].drafts, 1u);
  EXPECT_NEAR(none.rows[0].break_even, (19.2 + 17.6 + 28.8 + 8) / 64 - 1, 1e-12);
  const PlanSpeculation one = plan_speculation(small(), 1, 0.5);
  ASSERT_NE(one.best(), nullptr);
  EXPECT_EQ(one.best()->drafts, 1u);
  EXPECT_NEAR(one.speedup(*one.best()), 1.5 / (73.6 / 64), 1e-12);
  EXPECT_EQ(one.tokens(*one.best()), 1.5);
  EXPECT_EQ(plan_speculation(small(), 4, 0.5).best(), nullptr);  // everything computes
}

TEST(PlanSpeculation, TellsEveryAcceptance) {
  const PlanSpeculation s = plan_speculation(small(), 1, 0.5);
  ASSERT_EQ(s.acceptances, (std::vector<double>{0.2, 0.4, 0.5, 0.6, 0.8}));
  for (const PlanSpeculation::Row& row : s.rows) {
    ASSERT_EQ(row.speedups.size(), s.acceptances.size());
    EXPECT_EQ(row.speedups[2], s.speedup(row));
    for (size_t i = 1; i < row.speedups.size(); ++i) EXPECT_GT(row.speedups[i], row.speedups[i - 1]);
    // At the break-even a step gives as many tokens as it takes time.
    if (row.break_even < 1) {
      PlanSpeculation at = s;
      at.acceptance = row.break_even;
      EXPECT_NEAR(at.speedup(row), 1, 1e-9) << row.drafts;
    }
  }
  EXPECT_EQ(plan_speculation(small(), 1, 0.4).acceptances.size(), 4u);
}

TEST(PlanSpeculation, IsDerived) {
  const PlanInput in = small();
  Derivation d = *derive_plan(in, {}, std::vector<uint64_t>{1});
  derive_plan_speculation(d, plan_speculation(in, 1, 0.5));
  const Quantity* q = d.find("speculation_1_at_0_5_gain");
  ASSERT_NE(q, nullptr);
  EXPECT_NEAR(*evaluate(q->formula, q->inputs), 1.5 / (73.6 / 64), 1e-12);
  EXPECT_NEAR(d.value("speculation_1_verify"), 73.6 / 64, 1e-12);
}

TEST(PlanAdvice, GainsAreDerived) {
  const PlanInput in = small();
  const PlanGoals goals;
  const auto advice = plan_advice(in, goals, {});
  Derivation d = *derive_plan(in, goals, std::vector<uint64_t>{1});
  derive_advice(d, plan_objective(in, goals), plan_outcome(in, goals), advice);
  const Quantity* q = d.find("advice_weights_Q4_K_M_gain");
  ASSERT_NE(q, nullptr);
  EXPECT_DOUBLE_EQ(*evaluate(q->formula, q->inputs), 64.0 / 36);
  EXPECT_THAT(*d.explain("advice_weights_Q4_K_M_gain", true),
              HasSubstr("time per output token, with weights as Q4_K_M"));
}

}  // namespace
}  // namespace kvasir
