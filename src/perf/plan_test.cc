#include "perf/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "perf/plan_derivation.h"

namespace kvasir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// Small enough to count by hand: the matrices of a step hold 96 + 144 + 40 weights, the embedding 40; a token
// keeps 8 bytes in each of 2 layers. The machine reads 10 bytes and does 20 FLOPs a second.
PlanInput small() {
  PlanInput in;
  ModelShape& s = in.shape;
  s.vocab = 10, s.hidden = 4, s.ffn = 6, s.layers = 2, s.heads = 2, s.kv_heads = 1, s.head_dim = 2;
  s.windows = {0, 0};
  s.max_context = 8;
  s.name = "small";
  in.machine.name = "slow";
  in.machine.kind = MachineSpec::Kind::kGpu;
  in.machine.bandwidth = 10;
  in.machine.peaks = {5, 10, 20};
  in.machine.memory_bytes = 1000;
  in.context = in.prompt = 5;
  return in;
}

TEST(Plan, TimePerTokenIsTheSumOfTheKindsLimits) {
  // Read: 19.2 + 8 + 28.8 + 8 s. Compute, a row: 9.6 + 8 + 14.4 + 4 s.
  EXPECT_DOUBLE_EQ(time_per_token(small(), 1), 64);
  EXPECT_DOUBLE_EQ(time_per_token(small(), 2), 72);   // attention reads twice as much
  EXPECT_DOUBLE_EQ(time_per_token(small(), 4), 144);  // everything computes
  const StepTime time = step_time(small(), decode_step(small(), 1));
  EXPECT_DOUBLE_EQ(time.read_seconds(), 64);
  EXPECT_DOUBLE_EQ(time.compute_seconds(), 36);
  EXPECT_TRUE(time.memory_bound());
}

TEST(Plan, TimeToFirstToken) {
  // Compute: 48 + 24 (15 pairs in 2 layers) + 72; the head reads for 8 s.
  EXPECT_DOUBLE_EQ(time_to_first_token(small()), 152);
  PlanInput shared = small();
  shared.shared_prefix = 2;  // 3 rows with 3 + 4 + 5 pairs
  EXPECT_DOUBLE_EQ(time_to_first_token(shared), 28.8 + 19.2 + 43.2 + 8);
  EXPECT_EQ(longest_prompt_within(small(), 99), 3u);  // 89.6 s, and 120 for 4
  EXPECT_EQ(longest_prompt_within(small(), 1), 0u);
  EXPECT_EQ(longest_prompt_within(small(), 1000), 5u);
}

TEST(Plan, Memory) {
  EXPECT_DOUBLE_EQ(memory_needed(small(), 2), 640 + 160);
  EXPECT_EQ(conversations_in_memory(small()), 4u);  // 360 / 80
  PlanInput in = small();
  in.shared_prefix = 2;  // 32 bytes once, 48 each
  EXPECT_DOUBLE_EQ(memory_needed(in, 2), 640 + 32 + 96);
  EXPECT_EQ(conversations_in_memory(in), 6u);  // 328 / 48
  in.machine.memory_bytes = 600;
  EXPECT_EQ(conversations_in_memory(in), 0u);
  in.machine.memory_bytes = 0;
  EXPECT_EQ(conversations_in_memory(in), std::nullopt);
}

TEST(Plan, LargestBatchWithinATimeAndMemory) {
  EXPECT_EQ(largest_batch_within(small(), 72, 100), 2u);
  EXPECT_EQ(largest_batch_within(small(), 108, 100), 3u);  // 3 x 36 s of computing
  EXPECT_EQ(largest_batch_within(small(), 1e6, 100), 4u);  // memory
  EXPECT_EQ(largest_batch_within(small(), 1e6, 3), 3u);
  EXPECT_EQ(largest_batch_within(small(), 60, 100), 0u);
}

TEST(Plan, WhatBoundsAPoint) {
  const PlanPoint one = plan_point(small(), 1);
  EXPECT_EQ(one.bound, PlanBound::kBandwidth);
  EXPECT_DOUBLE_EQ(one.throughput, 1.0 / 64);
  EXPECT_EQ(plan_point(small(), 3).bound, PlanBound::kCompute);
  EXPECT_EQ(plan_point(small(), 5).bound, PlanBound::kMemorySize);
}

TEST(Plan, Batches) {
  EXPECT_THAT(plan_batches(small(), {}), ElementsAre(1, 2, 4, 8));
  EXPECT_THAT(plan_batches(small(), {.users = 7, .tpot_seconds = 108}), ElementsAre(1, 2, 3, 4, 7, 8));
  PlanInput unlimited = small();
  unlimited.machine.memory_bytes = 0;
  EXPECT_EQ(plan_batches(unlimited, {}).back(), 256u);
}

TEST(Plan, Contexts) {
  EXPECT_THAT(plan_contexts(small()), ElementsAre(1, 2, 5));
  const PlanInput filled = filled_to(small(), 2);
  EXPECT_EQ(filled.context, 2u);
  EXPECT_EQ(filled.prompt, 2u);
  const auto d = derive_plan(small(), {.users = 2}, std::vector<uint64_t>{2});
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->value("context_5_ttft"), 152);
  EXPECT_EQ(d->value("context_5_tpot"), 72);
  EXPECT_EQ(d->value("context_2_tpot"), time_per_token(filled, 2));
  EXPECT_EQ(d->value("context_5_throughput"), 2.0 / 72);
}

TEST(Plan, WidthOfTheNumbersMultiplied) {
  PlanInput in = small();
  in.weights = *parse_weight_format("Q4_K_M");
  EXPECT_EQ(matrix_bits(in), 16u);  // a GPU widens
  in.machine.kind = MachineSpec::Kind::kCpu;
  EXPECT_EQ(matrix_bits(in), 8u);
  EXPECT_EQ(attention_bits(in), 32u);
  in.weights = *parse_weight_format("BF16");
  EXPECT_EQ(matrix_bits(in), 16u);
  in.machine.reachable_compute = 0.5;
  EXPECT_DOUBLE_EQ(reachable_flops(in.machine, 8), 20);
}

TEST(Plan, FewerThreads) {
  PlanInput in = small();
  EXPECT_EQ(with_threads(in.machine, 1).bandwidth, 10);  // no profile: as it is
  HardwareProfile p;
  p.cpu = "two threads";
  p.threads = 2;
  p.int8_macs = {100, 200};
  p.f32_macs = {10, 15};
  p.reads = {{1000, {7, 8}}};
  const MachineSpec two = machine_from_profile(p, 5, "here");
  const MachineSpec one = with_threads(two, 1);
  EXPECT_EQ(one.bandwidth, 7);
  EXPECT_EQ(one.peaks.int8_macs, 100);
  EXPECT_EQ(one.peaks.f32_macs, 10);
  EXPECT_EQ(one.memory_bytes, 5u);
  EXPECT_EQ(one.profile->threads, 1u);
  EXPECT_EQ(with_threads(two, 9).bandwidth, 8);
}

TEST(Plan, RefusesWhatCannotBe) {
  PlanInput in = small();
  in.context = 9;
  EXPECT_THAT(check_plan(in).message(), HasSubstr("the context is 9 and small was made for at most 8"));
  in = small();
  in.prompt = 6;
  EXPECT_THAT(check_plan(in).message(), HasSubstr("the prompt is 6 and the context only 5"));
  in = small();
  in.shared_prefix = 5;
  EXPECT_THAT(check_plan(in).message(), HasSubstr("shared prefix is 5 of a prompt of 5"));
  in.prompt = 0;
  EXPECT_THAT(check_plan(in).message(), HasSubstr("prompt is 0"));
  in.context = 0;
  EXPECT_THAT(check_plan(in).message(), HasSubstr("context is 0"));
  EXPECT_TRUE(check_plan(small()).ok());
}

// Every formula, with its numbers put in, must give the value that the functions gave.
void expect_formulas_hold(const PlanInput& in) {
  const PlanGoals goals{.users = 3, .ttft_seconds = 1, .tpot_seconds = 1};
  const auto derivation = derive_plan(in, goals, plan_batches(in, goals));
  ASSERT_TRUE(derivation.ok()) << derivation.message();
  for (const Quantity& q : derivation->quantities()) {
    const Result<double> value = evaluate(q.formula, q.inputs);
    ASSERT_TRUE(value.ok()) << q.id;
    EXPECT_NEAR(*value, q.value, 1e-9 * std::abs(q.value))
        << in.shape.name << " " << q.id << ": " << q.formula;
    EXPECT_FALSE(q.source.empty()) << q.id;
  }
  EXPECT_EQ(derivation->value("ttft"), time_to_first_token(in));
  EXPECT_EQ(derivation->value("batch_1_tpot"), time_per_token(in, 1));
}

TEST(PlanDerivation, FormulasHoldForEveryKindOfModel) {
  for (const char* model : {"Llama 2 13B", "Llama 3.2 1B", "Gemma 3 4B", "Qwen2.5 7B", "Mixtral 8x7B",
                            "Qwen3 30B-A3B", "DeepSeek-V2-Lite", "DeepSeek-V3", "Mistral 7B"}) {
    for (const char* machine : {"H100", "Apple M1", "EPYC 9654"}) {
      PlanInput in;
      in.shape = *shape_by_name(model);
      in.machine = *machine_by_name(machine);
      in.kv = *parse_kv_format("int8");
      in.prompt = 1500;
      expect_formulas_hold(in);
      in.shared_prefix = 700;
      in.weights = *parse_weight_format("Q4_K_M");
      expect_formulas_hold(in);
      in.prompt = 1, in.shared_prefix = 0;
      expect_formulas_hold(in);
    }
  }
}

TEST(PlanDerivation, OfTheSmallShape) {
  const auto d = derive_plan(small(), {.users = 3}, std::vector<uint64_t>{2});
  ASSERT_TRUE(d.ok());
  EXPECT_EQ(d->value("exact_parameters"), 340);  // 320 and 5 norms of 4
  EXPECT_EQ(d->value("conversations"), 4);
  EXPECT_EQ(d->value("prefill_pairs"), 30);
  EXPECT_EQ(d->value("users_ttft"), 456);
  EXPECT_EQ(d->value("batch_2_attention_bytes"), 160);
  EXPECT_EQ(d->value("batch_2_tpot"), 72);
  EXPECT_EQ(d->value("batch_2_memory"), 800);
  EXPECT_THAT(*d->explain("ttft", true), HasSubstr("2 * 5 * 96"));
  PlanInput wrong = small();
  wrong.context = 9;
  EXPECT_FALSE(derive_plan(wrong, {}, {}).ok());
}

}  // namespace
}  // namespace kvasir
