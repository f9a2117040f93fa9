#include "perf/formulas.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace kvasir {
namespace {

using testing::HasSubstr;

ModelShape named(std::string_view name) {
  return *shape_by_name(name);
}

// A shape small enough to count by hand.
ModelShape small() {
  ModelShape s;
  s.vocab = 10, s.hidden = 4, s.ffn = 6, s.layers = 2, s.heads = 2, s.kv_heads = 1, s.head_dim = 2;
  s.windows = {0, 0};
  return s;
}

ModelShape small_moe() {
  ModelShape s = small();
  s.moe = ModelShape::Moe{.experts = 4,
                          .experts_used = 1,
                          .shared_experts = 1,
                          .expert_ffn_dim = 3,
                          .shared_ffn_dim = 5,
                          .leading_dense_layers = 1};
  return s;
}

MachineSpec machine(double bandwidth, double macs) {
  MachineSpec m;
  m.bandwidth = bandwidth;
  m.peaks = {macs / 4, macs, 2 * macs};
  return m;
}

TEST(Parameters, OfASmallShape) {
  // 2*10*4 + 3*4*6*2 + (2*4*2*2 + 2*4*1*2)*2 = 80 + 144 + 96
  EXPECT_EQ(plain_parameters(small()), 320u);
  EXPECT_EQ(count_parameters(small()).matrices(), 320u);
  EXPECT_EQ(count_parameters(small()).vectors, 20u);  // 2 norms of 4 in 2 layers, and the last
  ModelShape tied = small();
  tied.tied_embeddings = true;
  EXPECT_EQ(plain_parameters(tied), 280u);
  EXPECT_EQ(count_parameters(tied).matrices(), 280u);
}

TEST(Parameters, OfAMixture) {
  const ParameterCount c = count_parameters(small_moe());
  EXPECT_EQ(c.dense_ffn, 72u);  // 3*4*6, one layer
  EXPECT_EQ(c.experts, 144u);   // 4*3*4*3
  EXPECT_EQ(c.shared, 60u);     // 3*4*5
  EXPECT_EQ(c.router, 16u);     // 4*4
  EXPECT_EQ(active_parameters(small_moe()), c.matrices() - 108);
}

TEST(Parameters, OfMla) {
  ModelShape s = small();
  s.mla = ModelShape::Mla{
      .kv_lora_rank = 3, .qk_rope_head_dim = 2, .qk_nope_head_dim = 1, .v_head_dim = 2, .q_lora_rank = 0};
  // q 4*2*3, latent 4*(3+2), up 3*2*(1+2), out 2*2*4: 24 + 20 + 18 + 16 = 78 per layer
  EXPECT_EQ(count_parameters(s).attention, 156u);
  s.mla->q_lora_rank = 5;  // q 4*5 + 5*2*3 = 50
  EXPECT_EQ(count_parameters(s).attention, 208u);
}

TEST(Parameters, OfLlama2) {
  EXPECT_EQ(plain_parameters(named("Llama 2 13B")), 13015449600u);
  EXPECT_EQ(count_parameters(named("Llama 2 13B")).matrices(), 13015449600u);
}

TEST(Parameters, ActiveOfDeepSeekV3) {
  EXPECT_NEAR(static_cast<double>(active_parameters(named("DeepSeek-V3"))), 37.55e9, 0.01e9);
}

TEST(Experts, TouchedOnAverage) {
  EXPECT_DOUBLE_EQ(expected_experts(8, 2, 1), 2);
  EXPECT_DOUBLE_EQ(expected_experts(8, 2, 2), 8 * (1 - 0.75 * 0.75));
  EXPECT_DOUBLE_EQ(expected_experts(0, 0, 5), 0);
  const WeightFormat bytes{"int8", 8};
  EXPECT_DOUBLE_EQ(step_weight_bytes(small(), &bytes, 1), 320);
  // All but three of the four experts of one token.
  EXPECT_DOUBLE_EQ(step_weight_bytes(small_moe(), &bytes, 1),
                   static_cast<double>(active_parameters(small_moe())));
}

// The formula counts the embedding of 10 x 4, of which a step reads a row per token.
TEST(Embedding, IsLookedUpRowByRow) {
  const WeightFormat bytes{"int8", 8};
  EXPECT_DOUBLE_EQ(embedding_bytes(small(), &bytes), 40);
  EXPECT_DOUBLE_EQ(weight_bytes_read(small(), &bytes, 1), 320 - 36);
  EXPECT_DOUBLE_EQ(weight_bytes_read(small(), &bytes, 3), 320 - 28);
  EXPECT_DOUBLE_EQ(weight_bytes_read(small(), &bytes, 20), 320);
  // Nine rows more than the experts stay unread.
  EXPECT_DOUBLE_EQ(weight_bytes_read(small_moe(), &bytes, 1), step_weight_bytes(small_moe(), &bytes, 1) - 36);
  ModelShape s = small();
  s.tied_embeddings = true;  // and so the output head, which is read whole
  EXPECT_DOUBLE_EQ(weight_bytes_read(s, &bytes, 1), 280);
}

TEST(Embedding, BytesOfAFileAreExact) {
  ModelShape s = small();
  s.stored_bytes = 1000;
  s.stored_embedding_bytes = 200;
  EXPECT_DOUBLE_EQ(embedding_bytes(s), 200);
  EXPECT_DOUBLE_EQ(weight_bytes_read(s, nullptr, 1), 1000 - 180);
  const WeightFormat half{"F16", 16};
  EXPECT_DOUBLE_EQ(embedding_bytes(s, &half), 80);
}

TEST(Experts, BytesOfAFileAreExact) {
  ModelShape s = small_moe();
  const WeightFormat bytes{"int8", 8};
  EXPECT_DOUBLE_EQ(expert_bytes(s, &bytes), static_cast<double>(count_parameters(s).experts));
  EXPECT_EQ(expert_bytes(small(), &bytes), 0);
  s.stored_bytes = 1000;
  s.stored_expert_bytes = 800;
  EXPECT_EQ(expert_bytes(s), 800);
  EXPECT_DOUBLE_EQ(step_weight_bytes(s, nullptr, 1), 400);  // one of four experts
  EXPECT_DOUBLE_EQ(expert_bytes(s, &bytes), static_cast<double>(count_parameters(s).experts));
}

TEST(Kv, OfLlama2) {
  EXPECT_EQ(kv_bytes_per_sequence(named("Llama 2 7B"), KvFormat(), 4096), 2147483648.0);
  EXPECT_EQ(kv_bytes_per_sequence(named("Llama 2 13B"), KvFormat(), 1024), 838860800.0);
}

TEST(Kv, OfMla) {
  EXPECT_EQ(kv_bytes_per_token(named("DeepSeek-V2-Lite"), KvFormat()), 31104);
  EXPECT_EQ(mha_kv_bytes_per_token(named("DeepSeek-V2-Lite"), KvFormat()), 276480);
  EXPECT_EQ(kv_bytes_per_token(named("DeepSeek-V3"), KvFormat()), 70272);
  EXPECT_EQ(mha_kv_bytes_per_token(named("SmolLM2 135M"), KvFormat()),
            3 * 23040);  // GQA: a third of the heads
}

TEST(Kv, ByType) {
  const ModelShape s = named("SmolLM2 135M");  // 30 layers, 3 KV heads of 64
  EXPECT_EQ(kv_bytes_per_token(s, *parse_kv_format("f16")), 23040);
  EXPECT_EQ(kv_bytes_per_token(s, *parse_kv_format("bf16")), 23040);
  EXPECT_EQ(kv_bytes_per_token(s, *parse_kv_format("f32")), 46080);
  EXPECT_EQ(kv_bytes_per_token(s, *parse_kv_format("int8")), 30 * 3 * (128 + 8));
  const ModelShape mla = named("DeepSeek-V2-Lite");
  EXPECT_EQ(kv_bytes_per_token(mla, *parse_kv_format("int8")), 27 * (576 + 8));
}

TEST(Kv, AWindowBoundsWhatIsKept) {
  ModelShape s = small();
  s.windows = {8, 0};
  EXPECT_EQ(kv_positions(s, 5), 10u);
  EXPECT_EQ(kv_positions(s, 100), 108u);
  // 2 planes * 1 head * 2 values * 2 bytes
  EXPECT_EQ(kv_bytes_per_sequence(s, KvFormat(), 100), 108 * 8);
}

TEST(Paging, Waste) {
  EXPECT_DOUBLE_EQ(contiguous_waste(512, 2048), 0.75);
  EXPECT_DOUBLE_EQ(contiguous_waste(4096, 2048), 0);
  EXPECT_DOUBLE_EQ(paged_waste(17, 16), 1 - 17.0 / 32);
  EXPECT_DOUBLE_EQ(paged_waste(16, 16), 0);
  EXPECT_DOUBLE_EQ(paged_waste(0, 16), 0);
  EXPECT_DOUBLE_EQ(expected_paged_waste(92.5, 16), 7.5 / 100);
  EXPECT_DOUBLE_EQ(paging_gain(500, 2048, 16), 4);  // 2048 / 512
}

TEST(Performance, OfLlama2OnAnH100) {
  PerformanceOptions o{.batch = 1, .sequence = 1024, .weights = {}, .kv = {}, .bandwidth = 3.35e12};
  const auto one = compute_transformer_performance_stats(named("Llama 2 13B"), o);
  ASSERT_TRUE(one.ok());
  EXPECT_EQ(one->parameters, 13015449600u);
  EXPECT_EQ(one->parameter_bytes, 26030899200);
  EXPECT_EQ(one->kv_bytes_per_sequence, 838860800);
  EXPECT_EQ(one->memory_bytes, 26869760000);
  EXPECT_NEAR(one->latency_seconds, 8.02e-3, 0.005e-3);
  EXPECT_NEAR(one->throughput, 124.7, 0.05);
  o.batch = 64;
  const auto many = compute_transformer_performance_stats(named("Llama 2 13B"), o);
  EXPECT_NEAR(many->latency_seconds, 23.8e-3, 0.05e-3);
  EXPECT_NEAR(many->throughput, 2690, 1);
  ModelShape grouped = named("Llama 2 13B");
  grouped.kv_heads = 8;
  const auto gqa = compute_transformer_performance_stats(grouped, o);
  EXPECT_EQ(gqa->parameters, 11337728000u);
  EXPECT_NEAR(gqa->latency_seconds, 9.97e-3, 0.005e-3);
  EXPECT_NEAR(gqa->throughput, 6417, 0.5);
}

TEST(Performance, RefusesWhatHasNoMeaning) {
  PerformanceOptions o{.batch = 0, .sequence = 1, .weights = {}, .kv = {}, .bandwidth = 1};
  EXPECT_THAT(compute_transformer_performance_stats(small(), o).message(), HasSubstr("batch is 0"));
  o.batch = 1, o.sequence = 0;
  EXPECT_THAT(compute_transformer_performance_stats(small(), o).message(), HasSubstr("length is 0"));
  o.sequence = 1, o.bandwidth = 0;
  EXPECT_THAT(compute_transformer_performance_stats(small(), o).message(), HasSubstr("bandwidth is 0"));
}

TEST(Performance, WhatFits) {
  EXPECT_EQ(largest_batch(100, 40, 25), 2u);
  EXPECT_EQ(largest_batch(30, 40, 25), 0u);
  // H100: (80e9 - 26030899200) / 838860800 = 64.3
  EXPECT_EQ(largest_batch(80e9, 26030899200, 838860800), 64u);
  ModelShape s = small();  // 16 bytes per token
  EXPECT_EQ(longest_sequence(s, KvFormat(), 1000, 360, 2, 100000), 20u);
  EXPECT_EQ(longest_sequence(s, KvFormat(), 1000, 360, 2, 7), 7u);
  EXPECT_EQ(longest_sequence(s, KvFormat(), 10, 360, 2, 7), 0u);
  s.windows = {10, 0};  // room 320: 80 + 8 n
  EXPECT_EQ(longest_sequence(s, KvFormat(), 1000, 360, 2, 100000), 30u);
}

TEST(Performance, CriticalBatch) {
  // ridge 2 * 100 / 10 = 20 FLOPs per byte; 2 bytes per weight: 20 rows.
  EXPECT_DOUBLE_EQ(ridge_point(machine(10, 100), 16), 20);
  EXPECT_DOUBLE_EQ(critical_batch(small(), machine(10, 100), 16, 16), 20);
  EXPECT_DOUBLE_EQ(critical_batch(small(), machine(10, 100), 8, 16), 10);
  EXPECT_DOUBLE_EQ(critical_batch(small(), machine(10, 100), 8, 8), 20);
  EXPECT_DOUBLE_EQ(critical_batch(small_moe(), machine(10, 100), 16, 16), 80);  // 4 experts for each used
  // The book: an H100 needs 295 tokens for bf16 matrices (989.4e12 / 3.35e12).
  EXPECT_NEAR(critical_batch(named("Llama 2 13B"), *machine_by_name("H100"), 16, 16), 295.3, 0.1);
}

TEST(Performance, BatchThatComputesAsLongAsItReads) {
  const ModelShape s = small();
  PerformanceOptions o{.batch = 1, .sequence = 5, .weights = {}, .kv = {}, .bandwidth = 10};
  // Matrices 2 * (320 - 40) = 560; attention 4 * 2 * 2 * 5 * 2 layers = 160. KV: 5 * 2 * 8 = 80 bytes.
  EXPECT_DOUBLE_EQ(decode_flops(s, 5), 720);
  EXPECT_DOUBLE_EQ(matrix_flops_per_token(s), 560);
  // Computing 720 / 20 = 36 s a sequence; reading 640 / 10 = 64 s, and 8 s a sequence: 36 B = 64 + 8 B.
  const auto bound = compute_bound_batch(s, machine(10, 10), o);
  ASSERT_TRUE(bound.has_value());
  EXPECT_DOUBLE_EQ(*bound, 64.0 / 28);
  EXPECT_FALSE(compute_bound_batch(s, machine(10, 1000), o).has_value());
}

TEST(WorkFormulas, OfAMatrix) {
  const Work w = matmul_work(3, 4, 5, 4.5, 2);
  EXPECT_DOUBLE_EQ(w.flops, 120);
  EXPECT_DOUBLE_EQ(w.weight_bytes, 11.25);
  EXPECT_DOUBLE_EQ(w.activation_bytes, 54);
  EXPECT_DOUBLE_EQ(w.intensity(), 120 / 65.25);
}

TEST(WorkFormulas, OfAPrefill) {
  // Three tokens: 1 + 2 + 3 pairs, 3 positions. Matrices of 320 - 40 - 40 weights.
  const auto layers = step_work(small(), {.sequences = 1, .rows = 3, .context = 0, .logit_rows = 1}, {});
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[0].name, "attention projections");
  EXPECT_DOUBLE_EQ(layers[0].work.flops, 2 * 3 * 96);
  EXPECT_DOUBLE_EQ(layers[0].work.weight_bytes, 2 * 96);
  EXPECT_DOUBLE_EQ(layers[1].work.flops, 4 * 4 * 6 * 2);
  EXPECT_DOUBLE_EQ(layers[1].work.kv_bytes, 3 * 8 * 2);
  EXPECT_DOUBLE_EQ(layers[2].work.flops, 2 * 3 * 144);
  EXPECT_DOUBLE_EQ(layers[3].work.flops, 2 * 40);
  EXPECT_DOUBLE_EQ(total_work(layers).flops, 576 + 192 + 864 + 80);
}

TEST(WorkFormulas, SequencesShareWeightsAndNotTheCache) {
  const auto layers = step_work(small(), {.sequences = 5, .rows = 1, .context = 9, .logit_rows = 1}, {});
  EXPECT_DOUBLE_EQ(layers[0].work.weight_bytes, 2 * 96);
  EXPECT_DOUBLE_EQ(layers[1].work.kv_bytes, 5 * 10 * 16);
  EXPECT_DOUBLE_EQ(layers[1].work.flops, 5 * 4 * 4 * 10 * 2);
}

TEST(WorkFormulas, OfExperts) {
  const auto layers = step_work(small_moe(), {.sequences = 1, .rows = 1, .context = 0, .logit_rows = 0}, {});
  ASSERT_EQ(layers.size(), 4u);
  EXPECT_EQ(layers[3].name, "experts");
  // One expert of 3*4*3, router 16, shared 60.
  EXPECT_DOUBLE_EQ(layers[3].work.flops, 2 * (36 + 16 + 60));
  EXPECT_DOUBLE_EQ(layers[3].work.weight_bytes, 2 * (36 + 16 + 60));
}

TEST(WorkFormulas, MlaAbsorbsShortChunks) {
  const ModelShape s = named("DeepSeek-V2-Lite");
  EXPECT_TRUE(absorbs(*s.mla, 1));
  EXPECT_TRUE(absorbs(*s.mla, 170));  // 512 * 256 / (1088 - 320) = 170.7
  EXPECT_FALSE(absorbs(*s.mla, 171));
  const auto decode = step_work(s, {.sequences = 1, .rows = 1, .context = 999, .logit_rows = 1}, {});
  // 16 heads, per layer: 2 * 16 * 1088 per position and 2 * 16 * 512 * 256 for the row.
  EXPECT_DOUBLE_EQ(decode[1].work.flops, 27.0 * (2 * 16 * 1088 * 1000.0 + 2 * 16 * 512 * 256.0));
  EXPECT_DOUBLE_EQ(decode[1].work.kv_bytes, 31104000);
  const auto prefill = step_work(s, {.sequences = 1, .rows = 1000, .context = 0, .logit_rows = 1}, {});
  EXPECT_DOUBLE_EQ(prefill[1].work.flops, 27.0 * (2 * 16 * 320 * 500500.0 + 2 * 512 * 16 * 256 * 1000.0));
}

TEST(WorkFormulas, Roofline) {
  Work w;
  w.flops = 400, w.weight_bytes = 10;
  EXPECT_DOUBLE_EQ(roofline_seconds(w, machine(10, 100), 16), 2);
  w.weight_bytes = 30;
  EXPECT_DOUBLE_EQ(roofline_seconds(w, machine(10, 100), 16), 3);
}

TEST(Speculation, TokensPerStep) {
  EXPECT_DOUBLE_EQ(expected_tokens_per_step(0.5, 3), 1.875);  // 1 + 1/2 + 1/4 + 1/8
  EXPECT_DOUBLE_EQ(expected_tokens_per_step(0, 3), 1);
  EXPECT_DOUBLE_EQ(expected_tokens_per_step(1, 3), 4);
  EXPECT_NEAR(expected_tokens_per_step(0.8, 5), 3.69, 0.005);
  EXPECT_NEAR(expected_tokens_per_step(0.8, 4), 3.36,
              0.005);  // of five guesses, without the token after them
  EXPECT_DOUBLE_EQ(expected_accepted(0.5, 3), 0.875);
}

TEST(Speculation, SpeedUpAndBestLength) {
  EXPECT_DOUBLE_EQ(speculation_speedup(0.5, 0, 0.1, 1), 1);
  EXPECT_DOUBLE_EQ(speculation_speedup(0.5, 3, 0.1, 1.2), 1.875 / 1.5);
  // V of 2 rows per read, free drafts: 1.5, 1.75 / 1.5, ...: one draft.
  const DraftChoice one = best_drafts(0.5, 0, roofline_verify_cost(2), 8);
  EXPECT_EQ(one.drafts, 1u);
  EXPECT_DOUBLE_EQ(one.speedup, 1.5);
  // Drafts as dear as the target never pay.
  EXPECT_EQ(best_drafts(0.9, 1, roofline_verify_cost(1), 8).drafts, 0u);
  // Always right and free: as many as are allowed.
  EXPECT_EQ(best_drafts(1, 0, roofline_verify_cost(100), 8).drafts, 8u);
}

}  // namespace
}  // namespace kvasir
