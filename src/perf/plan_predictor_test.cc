#include "perf/plan_predictor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perf/perf_model_rig.h"
#include "perf/plan_advice.h"
#include "perf/plan_derivation.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

constexpr uint32_t kMostRows = 64;

std::shared_ptr<const PlanPredictor> small_predictor() {
  return std::make_shared<const PlanPredictor>(PlanPredictor::Model{small_config(), small_weights()},
                                               small_machine(),
                                               PerfModel::Options{.threads = 2, .max_rows = kMostRows});
}

PerfModel model_of(uint32_t threads = 2) {
  return PerfModel(small_config(), small_weights(), small_machine(),
                   {.threads = threads, .max_rows = kMostRows, .max_logit_rows = kMostRows});
}

// The rig's model as a plan.
PlanInput small_plan() {
  PlanInput in;
  ModelShape& s = in.shape;
  s.vocab = 160, s.hidden = 32, s.ffn = 64, s.layers = 1, s.heads = s.kv_heads = 2, s.head_dim = 16;
  s.windows = {0};
  s.name = "small";
  s.source = "this test";
  in.machine = machine_from_profile(small_machine(), uint64_t{1} << 30, "a file");
  in.context = in.prompt = 150;
  in.predictor = small_predictor();
  return in;
}

TEST(PlanPredictor, ADecodeIsTheModelsStep) {
  const std::vector<StepRows> rows(3, {.rows = 1, .context = 99});
  EXPECT_DOUBLE_EQ(
      small_predictor()->predict({.sequences = 3, .rows = 1, .context = 99, .logit_rows = 1}).seconds,
      model_of().predict(rows, 3).seconds);
}

TEST(PlanPredictor, APromptIsReadInPieces) {
  const PerfModel model = model_of();
  const StepRows pieces[] = {{64, 10}, {64, 74}, {22, 138}};
  double sum = 0;
  for (const StepRows& piece : pieces)
    sum += model.predict(std::span(&piece, 1), piece.context == 138 ? 1 : 0).seconds;
  const StepShape prompt{.sequences = 1, .rows = 150, .context = 10, .logit_rows = 1};
  EXPECT_NEAR(small_predictor()->predict(prompt).seconds, sum, 1e-12 * sum);
  EXPECT_EQ(small_predictor()->steps(prompt), 3u);
}

TEST(PlanPredictor, MoreSequencesThanAStepTakesAreSeveralSteps) {
  const PerfModel model = model_of();
  const std::vector<StepRows> full(64, {.rows = 1, .context = 9}), rest(2, {.rows = 1, .context = 9});
  const double by_hand = 2 * model.predict(full, 64).seconds + model.predict(rest, 2).seconds;
  const StepShape step{.sequences = 130, .rows = 1, .context = 9, .logit_rows = 1};
  EXPECT_NEAR(small_predictor()->predict(step).seconds, by_hand, 1e-12 * by_hand);
  EXPECT_EQ(small_predictor()->steps(step), 3u);
  // Verifications of drafts are not cut: 21 sequences of three rows go into a step.
  EXPECT_EQ(small_predictor()->steps({.sequences = 22, .rows = 3, .context = 9, .logit_rows = 3}), 2u);
}

TEST(PlanPredictor, TermsAddUp) {
  for (const StepShape& shape : {StepShape{1, 150, 10, 1}, StepShape{130, 1, 9, 1}, StepShape{22, 3, 9, 3}}) {
    const double seconds = small_predictor()->predict(shape).seconds;
    EXPECT_NEAR(small_predictor()->terms(shape).seconds(), seconds, 1e-12 * seconds);
  }
}

TEST(PlanPredictor, WithOtherThreads) {
  const StepShape step{.sequences = 1, .rows = 1, .context = 99, .logit_rows = 1};
  const std::vector<StepRows> rows = {{.rows = 1, .context = 99}};
  EXPECT_DOUBLE_EQ(small_predictor()->with_threads(1)->predict(step).seconds,
                   model_of(1).predict(rows, 1).seconds);
}

TEST(PlanWithPredictor, TimesArePredictedAndFloorsStay) {
  const PlanInput in = small_plan();
  const double predicted = in.predictor->predict(decode_step(in, 2)).seconds;
  const double floor = step_time(in, decode_step(in, 2)).seconds();
  EXPECT_EQ(time_per_token(in, 2), predicted);
  EXPECT_EQ(time_to_first_token(in), in.predictor->predict(prefill_step(in)).seconds);
  EXPECT_EQ(time_per_token(floor_of(in), 2), floor);
  EXPECT_GT(predicted, floor);
  const PlanPoint point = plan_point(in, 2);
  EXPECT_EQ(point.seconds, predicted);
  EXPECT_EQ(point.floor_seconds, floor);
  EXPECT_EQ(point.throughput, 2 / predicted);
  EXPECT_EQ(point.mostly, StepPart::kAttention);
  EXPECT_FALSE(plan_point(floor_of(in), 2).mostly);
  EXPECT_EQ(largest_batch_within(in, predicted, 100), 2u);
}

TEST(PlanWithPredictor, KnowsWhatItCannotPredict) {
  const PlanInput in = small_plan();
  EXPECT_EQ(with_weights(in, *parse_weight_format("Q8_0")).predictor, nullptr);
  EXPECT_EQ(with_machine(in, *machine_by_name("M1")).predictor, nullptr);
  EXPECT_EQ(with_kv(in, *parse_kv_format("fp8")).predictor, nullptr);
  EXPECT_NE(with_kv(in, *parse_kv_format("int8")).predictor, nullptr);
  EXPECT_EQ(with_kv(floor_of(in), *parse_kv_format("int8")).predictor, nullptr);
}

// Every part of a prediction gives its value by its formula, and all of them the model's own number.
TEST(PlanWithPredictor, EveryPredictionIsExplained) {
  PlanInput in = small_plan();
  in.shared_prefix = 20;
  const PlanGoals goals{.users = 3, .ttft_seconds = 1, .tpot_seconds = 1};
  const std::vector<uint64_t> batches = {1, 3, 100};
  const auto d = derive_plan(in, goals, batches);
  ASSERT_TRUE(d.ok()) << d.message();
  for (const Quantity& q : d->quantities()) {
    const Result<double> value = evaluate(q.formula, q.inputs);
    ASSERT_TRUE(value.ok()) << q.id;
    EXPECT_NEAR(*value, q.value, 1e-9 * std::abs(q.value)) << q.id << ": " << q.formula;
    EXPECT_FALSE(q.source.empty()) << q.id;
  }
  EXPECT_EQ(d->value("predicted_ttft"), in.predictor->predict(prefill_step(in)).seconds);
  EXPECT_EQ(d->value("ttft"), time_to_first_token(floor_of(in)));
  EXPECT_EQ(d->value("ttft_reached"), d->value("ttft") / d->value("predicted_ttft"));
  EXPECT_EQ(d->value("users_ttft"), 3 * d->value("predicted_ttft"));
  EXPECT_EQ(d->value("predicted_batch_3_tpot"), in.predictor->predict(decode_step(in, 3)).seconds);
  EXPECT_EQ(d->value("predicted_batch_3_throughput"), 3 / d->value("predicted_batch_3_tpot"));
  EXPECT_EQ(d->value("predicted_context_75_ttft"), time_to_first_token(filled_to(in, 75)));
  EXPECT_EQ(d->value("context_75_tpot"), time_per_token(floor_of(filled_to(in, 75)), 3));
  EXPECT_EQ(best_id(*d, "ttft"), "predicted_ttft");
  EXPECT_EQ(best_id(*d, "batch_3_memory"), "batch_3_memory");
  EXPECT_NEAR(d->value("predicted_batch_1_linear_Q8_0"), 4096 * 2e-9, 1e-15);
  EXPECT_NEAR(d->value("predicted_batch_1_head_Q8_0"), 5120 * 2e-9 * 1.2, 1e-15);
  EXPECT_NEAR(d->value("predicted_batch_1_attention"), (10 + 150 * 1.1) * kMicro, 1e-12);
  EXPECT_THAT(*d->explain("predicted_ttft", true), HasSubstr("the layers' matrices as Q8_0 in the prompt"));
}

// Gains compare like with like: what nobody can predict is a floor over a floor.
TEST(PlanWithPredictor, AdviceComparesLikeWithLike) {
  PlanInput in = small_plan();
  in.shape.weights = *parse_weight_format("F16");
  const PlanGoals goals;
  const auto advice = plan_advice(in, goals, {});
  const PlanOutcome before = plan_outcome(in, goals), floor = plan_outcome(floor_of(in), goals);
  EXPECT_TRUE(before.predicted);
  EXPECT_FALSE(floor.predicted);
  size_t predicted = 0, floors = 0;
  for (const PlanAdvice& a : advice) {
    ++(a.after.predicted ? predicted : floors);
    EXPECT_DOUBLE_EQ(a.gain, (a.after.predicted ? before : floor).tpot / a.after.tpot) << a.id;
    const bool elsewhere = a.id.starts_with("weights_") || a.id.starts_with("machine_");
    EXPECT_EQ(a.after.predicted, !elsewhere) << a.id;
  }
  EXPECT_GT(predicted, 0u);
  EXPECT_GT(floors, 0u);
  Derivation d = *derive_plan(in, goals, std::vector<uint64_t>{1});
  derive_advice(d, plan_objective(in, goals), before, advice);
  for (const PlanAdvice& a : advice) {
    const Quantity* q = d.find("advice_" + a.id + "_gain");
    EXPECT_NEAR(*evaluate(q->formula, q->inputs), a.gain, 1e-12 * a.gain) << a.id;
  }
}

}  // namespace
}  // namespace kvasir
