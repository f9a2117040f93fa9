// What the readers of single architectures make of their keys, and what they refuse.
#include <fmt/core.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "models/arch/arch.h"

namespace kvasir {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// The smallest configuration that passes the checks.
GgufMetadata keys(const std::string& arch, int64_t layers = 4) {
  GgufMetadata m;
  m.insert("general.architecture", arch);
  m.insert(arch + ".block_count", layers);
  m.insert(arch + ".context_length", int64_t{4096});
  m.insert(arch + ".embedding_length", int64_t{128});
  m.insert(arch + ".feed_forward_length", int64_t{64});
  m.insert(arch + ".attention.head_count", int64_t{4});
  m.insert(arch + ".attention.head_count_kv", int64_t{2});
  return m;
}

bool has_latent(const std::string& arch) {
  return arch == "deepseek2" || arch == "minicpm3" || arch == "plm";
}

// The same for multi-head latent attention, of a head of 48 values.
GgufMetadata latent_keys(const std::string& arch, int64_t latent = 64, int64_t rotated = 16) {
  GgufMetadata m = keys(arch);
  m.insert(arch + ".attention.kv_lora_rank", latent);
  m.insert(arch + ".attention.key_length", int64_t{48});
  m.insert(arch + ".rope.dimension_count", rotated);
  return m;
}

ModelConfig config(const GgufMetadata& metadata) {
  const Result<ModelConfig> c = read_model_config(metadata);
  EXPECT_TRUE(c.ok()) << c.message();
  return c.ok() ? *c : ModelConfig();
}

std::string refusal(const GgufMetadata& metadata, ErrorCode code) {
  const Result<ModelConfig> c = read_model_config(metadata);
  EXPECT_FALSE(c.ok());
  EXPECT_EQ(c.status().code(), code) << c.message();
  return c.message();
}

TEST(Families, EveryRowReadsItsOwnKeys) {
  for (const ArchSpec& spec : architectures()) {
    GgufMetadata m = has_latent(spec.name) ? latent_keys(spec.name) : keys(spec.name);
    if (spec.experts) {
      m.insert(std::string(spec.name) + ".expert_count", int64_t{4});
      m.insert(std::string(spec.name) + ".expert_used_count", int64_t{2});
    }
    const ModelConfig c = config(m);
    EXPECT_EQ(c.mla.has_value(), has_latent(spec.name)) << spec.name;
    EXPECT_EQ(c.architecture, spec.name);
    EXPECT_EQ(c.layers_with_experts(), spec.experts ? 4u : 0u) << spec.name;
    EXPECT_EQ(c.windows.size(), 4u) << spec.name;
    EXPECT_EQ(c.ropes.size(), 4u) << spec.name;
  }
}

TEST(Families, AnUnknownArchitectureIsToldWhatThereIs) {
  const std::string message = refusal(keys("mamba2"), ErrorCode::kUnsupported);
  EXPECT_THAT(message,
              HasSubstr("general.architecture is 'mamba2': not supported, for it needs layers that carry "
                        "a state in place of attention; supported are llama, "));
  EXPECT_THAT(refusal(keys("newest"), ErrorCode::kUnsupported),
              HasSubstr("general.architecture is 'newest': not supported; supported are llama, "));
  for (const ArchSpec& spec : architectures()) EXPECT_THAT(message, HasSubstr(spec.name));
}

TEST(Families, WhatIsMissingIsKnownOfNoneThatRuns) {
  EXPECT_EQ(what_is_missing("phi2"), "feed-forward parts of GELU without a gate");
  EXPECT_EQ(what_is_missing("arcee"), "");
  EXPECT_EQ(what_is_missing("t5"), "an encoder");
  EXPECT_EQ(what_is_missing("qwen3"), "");
  EXPECT_EQ(what_is_missing(""), "");
  for (const ArchSpec& spec : architectures()) EXPECT_EQ(what_is_missing(spec.name), "") << spec.name;
}

// Files of DeepSeek-V2-Lite's sizes; its YaRN has a factor of 40 and scores that grow with 0.0707 of its
// logarithm: 1.2608 squared.
TEST(Families, LatentSizesComeUnderTwoNames) {
  const ModelConfig older = config(latent_keys("deepseek2"));
  EXPECT_EQ(older.head_dim, 80u);  // a cache row
  EXPECT_EQ(older.kv_heads, 1u);
  EXPECT_EQ(older.mla->nope_dim, 32u);
  EXPECT_EQ(older.mla->value_dim, 32u);  // width / heads
  EXPECT_EQ(older.mla->query, 0u);
  EXPECT_FLOAT_EQ(older.attention_scale, 1 / std::sqrt(48.0f));
  EXPECT_EQ(older.kv_layers()[0].latent, 64u);

  GgufMetadata now = keys("deepseek2");
  for (const auto& [key, value] : {std::pair{"attention.kv_lora_rank", 512},
                                   {"attention.key_length", 576},
                                   {"attention.value_length", 512},
                                   {"attention.key_length_mla", 192},
                                   {"attention.value_length_mla", 128},
                                   {"rope.dimension_count", 64},
                                   {"rope.scaling.original_context_length", 4096}})
    now.insert(fmt::format("deepseek2.{}", key), int64_t{value});
  now.insert("deepseek2.rope.scaling.type", std::string("yarn"));
  now.insert("deepseek2.rope.scaling.factor", 40.0);
  now.insert("deepseek2.rope.scaling.yarn_log_multiplier", 0.0707);
  const ModelConfig c = config(now);
  EXPECT_EQ(c.head_dim, 576u);
  EXPECT_EQ(c.mla->nope_dim, 128u);
  EXPECT_EQ(c.value_dim(), 512u);
  EXPECT_EQ(c.attn_dim(), 4 * 128u);
  EXPECT_EQ(c.raw_q_dim(), 4 * 192u);
  EXPECT_NEAR(c.attention_scale, 1.2608 * 1.2608 / std::sqrt(192.0), 1e-5);
  EXPECT_EQ(c.rope_scaling.magnitude, 1.0);
}

TEST(Families, LatentsThatKernelsCannotTakeAreRefused) {
  EXPECT_THAT(refusal(latent_keys("plm", 64, 48), ErrorCode::kCorrupt),
              HasSubstr("plm.attention.key_length is 48"));
  EXPECT_THAT(refusal(latent_keys("plm", 1024), ErrorCode::kUnsupported),
              HasSubstr("the latent of K and V has 1024 values: must be a multiple of 32, at most 512"));
}

TEST(Families, Gemma2HasAWindowInEveryOtherLayer) {
  GgufMetadata m = keys("gemma2");
  m.insert("gemma2.attention.sliding_window", int64_t{512});
  m.insert("gemma2.attn_logit_softcapping", 50.0);
  m.insert("gemma2.final_logit_softcapping", 30.0);
  const ModelConfig c = config(m);
  EXPECT_THAT(c.windows, ElementsAre(512, 0, 512, 0));
  EXPECT_EQ(c.attention_softcap, 50.0f);
  EXPECT_EQ(c.final_softcap, 30.0f);
  EXPECT_FLOAT_EQ(c.embedding_scale, std::sqrt(128.0f));
}

// The 27B models scale scores by the width that a head would have without a key_length of its own.
TEST(Families, TheLargestGemmasScaleScoresByAnotherWidth) {
  for (const auto& [arch, layers] : {std::pair{"gemma2", 46}, {"gemma3", 62}}) {
    for (const int64_t count : {int64_t{layers}, int64_t{4}}) {
      GgufMetadata m = keys(arch, count);
      m.insert(std::string(arch) + ".attention.key_length", int64_t{64});
      m.insert(std::string(arch) + ".attention.value_length", int64_t{64});
      EXPECT_FLOAT_EQ(config(m).attention_scale, 1.0f / std::sqrt(count == 4 ? 64.0f : 32.0f)) << arch;
    }
  }
}

TEST(Families, Phi3sWindowIsThatOfEveryLayer) {
  EXPECT_THAT(config(keys("phi3", 2)).windows, ElementsAre(0, 0));
  GgufMetadata m = keys("phi3", 2);
  m.insert("phi3.attention.sliding_window", int64_t{2047});
  EXPECT_THAT(config(m).windows, ElementsAre(2047, 2047));
  GgufMetadata wide = keys("phi3", 2);
  wide.insert("phi3.attention.sliding_window", int64_t{262144});
  EXPECT_THAT(config(wide).windows, ElementsAre(0, 0));
}

TEST(Families, LayersWithoutRope) {
  using enum LayerRope;
  EXPECT_THAT(config(keys("smollm3", 5)).ropes, ElementsAre(kGlobal, kGlobal, kGlobal, kNone, kGlobal));
  GgufMetadata m = keys("cohere2", 5);
  m.insert("cohere2.attention.sliding_window", int64_t{64});
  EXPECT_THAT(config(m).ropes, ElementsAre(kGlobal, kGlobal, kGlobal, kNone, kGlobal));
  EXPECT_THAT(config(m).windows, ElementsAre(64, 64, 64, 0, 64));
}

// A window that no context can fill is none, but its layers keep their kind of RoPE.
TEST(Families, AWindowBeyondTheContextKeepsItsRope) {
  using enum LayerRope;
  GgufMetadata m = keys("olmo2");
  m.insert("olmo2.attention.sliding_window", int64_t{4096});
  m.insert("olmo2.rope.freq_base", 5e5);
  EXPECT_THAT(config(m).windows, ElementsAre(0, 0, 0, 0));
  EXPECT_THAT(config(m).ropes, ElementsAre(kLocal, kLocal, kLocal, kGlobal));
  EXPECT_EQ(config(m).rope_base_local, 5e5);
}

TEST(Families, GranitesFactors) {
  GgufMetadata m = keys("granite");
  m.insert("granite.embedding_scale", 12.0);
  m.insert("granite.residual_scale", 0.22);
  m.insert("granite.attention.scale", 0.0625);
  m.insert("granite.logit_scale", 8.0);
  const ModelConfig c = config(m);
  EXPECT_EQ(c.embedding_scale, 12.0f);
  EXPECT_EQ(c.residual_scale, 0.22f);
  EXPECT_EQ(c.attention_scale, 0.0625f);
  EXPECT_EQ(c.logit_scale, 0.125f);
  GgufMetadata zero = keys("granite");
  zero.insert("granite.logit_scale", 0.0);
  EXPECT_THAT(refusal(zero, ErrorCode::kCorrupt), HasSubstr("granite.logit_scale is 0: must be positive"));
}

TEST(Families, LayerNormsHaveTheirOwnEpsilon) {
  for (const char* arch : {"stablelm", "command-r", "cohere2"}) {
    GgufMetadata m = keys(arch);
    m.insert(std::string(arch) + ".attention.layer_norm_epsilon", 0.25);
    EXPECT_EQ(config(m).norm, NormKind::kLayer);
    EXPECT_EQ(config(m).norm_eps, 0.25f);
  }
}

TEST(RopeKeys, YarnIsReadAndItsMagnitudeFollows) {
  GgufMetadata m = keys("qwen2");
  m.insert("qwen2.rope.scaling.type", std::string("yarn"));
  m.insert("qwen2.rope.scaling.factor", 4.0);
  m.insert("qwen2.rope.scaling.original_context_length", int64_t{1024});
  const RopeScaling s = config(m).rope_scaling;
  EXPECT_EQ(s.yarn_factor, 4.0);
  EXPECT_EQ(s.original_context, 1024u);
  EXPECT_NEAR(s.magnitude, 1.1386294361, 1e-9);
  m.insert("qwen2.rope.scaling.yarn_attn_factor", 1.5);
  EXPECT_EQ(config(m).rope_scaling.magnitude, 1.5);
}

TEST(RopeKeys, WhatYarnCannotDoWithoutIsNamed) {
  GgufMetadata m = keys("qwen2");
  m.insert("qwen2.rope.scaling.type", std::string("yarn"));
  m.insert("qwen2.rope.scaling.factor", 4.0);
  EXPECT_THAT(refusal(m, ErrorCode::kCorrupt),
              HasSubstr("qwen2.rope.scaling.original_context_length is missing"));
  m.insert("qwen2.rope.scaling.original_context_length", int64_t{1024});
  m.insert("qwen2.rope.scaling.yarn_log_multiplier", 0.1);
  EXPECT_THAT(refusal(m, ErrorCode::kUnsupported),
              HasSubstr("qwen2.rope.scaling.yarn_log_multiplier is 0.1: only 0 is supported"));
}

TEST(RopeKeys, AnyOtherScalingIsRefused) {
  GgufMetadata m = keys("llama");
  m.insert("llama.rope.scaling.type", std::string("dynamic"));
  EXPECT_THAT(
      refusal(m, ErrorCode::kUnsupported),
      HasSubstr("llama.rope.scaling.type is 'dynamic': supported are none, linear, yarn and longrope"));
}

// Of an architecture that always has experts.
GgufMetadata mixture(const std::string& arch, int64_t experts = 8, int64_t used = 2) {
  GgufMetadata m = keys(arch);
  m.insert(arch + ".expert_count", experts);
  m.insert(arch + ".expert_used_count", used);
  return m;
}

TEST(Experts, AreWhatTheFamilySays) {
  for (const char* arch : {"llama", "qwen2moe", "qwen3moe", "olmoe", "granitemoe", "gpt-oss"}) {
    const ModelConfig c = config(mixture(arch));
    const RouterShape& r = c.mixture.router;
    EXPECT_EQ(r.experts, 8u);
    EXPECT_EQ(r.used, 2u);
    EXPECT_EQ(r.score, RouterShape::Score::kSoftmax);
    EXPECT_EQ(r.normalised, std::string(arch) != "qwen2moe" && std::string(arch) != "olmoe") << arch;
    EXPECT_EQ(c.mixture.ffn_dim, 64u);
    EXPECT_EQ(c.mixture.shared_ffn_dim, std::string(arch) == "qwen2moe" ? 64u : 0u) << arch;
    EXPECT_EQ(c.layers_with_experts(), 4u);
  }
  EXPECT_EQ(config(keys("llama")).layers_with_experts(), 0u);
}

TEST(Experts, KeysGoFirst) {
  GgufMetadata m = mixture("qwen2moe");
  m.insert("qwen2moe.expert_feed_forward_length", int64_t{32});
  m.insert("qwen2moe.expert_shared_count", int64_t{2});
  m.insert("qwen2moe.expert_gating_func", int64_t{2});
  m.insert("qwen2moe.expert_weights_norm", true);
  m.insert("qwen2moe.expert_weights_scale", 2.5);
  m.insert("qwen2moe.expert_group_count", int64_t{4});
  m.insert("qwen2moe.expert_group_used_count", int64_t{2});
  m.insert("qwen2moe.leading_dense_block_count", int64_t{1});
  const ModelConfig c = config(m);
  EXPECT_EQ(c.mixture.ffn_dim, 32u);
  EXPECT_EQ(c.mixture.shared_ffn_dim, 64u);
  EXPECT_EQ(c.mixture.router.score, RouterShape::Score::kSigmoid);
  EXPECT_TRUE(c.mixture.router.normalised);
  EXPECT_EQ(c.mixture.router.scale, 2.5f);
  EXPECT_EQ(c.mixture.router.groups, 4u);
  EXPECT_EQ(c.mixture.router.groups_used, 2u);
  EXPECT_FALSE(c.has_experts(0));
  EXPECT_TRUE(c.has_experts(1));
  EXPECT_EQ(c.layers_with_experts(), 3u);
  EXPECT_EQ(c.widest_ffn(), 64u);
}

// The keys of DeepSeek-V2-Lite's files, which do not say how the router scores, and those of V3's.
TEST(Experts, OfDeepSeek) {
  const auto deepseek = [](int64_t experts, int64_t used, int64_t shared, double scale) {
    GgufMetadata m = latent_keys("deepseek2");
    m.insert("deepseek2.expert_count", experts);
    m.insert("deepseek2.expert_used_count", used);
    m.insert("deepseek2.expert_shared_count", shared);
    m.insert("deepseek2.expert_feed_forward_length", int64_t{1408});
    m.insert("deepseek2.expert_weights_scale", scale);
    return m;
  };
  GgufMetadata lite = deepseek(64, 6, 2, 1.0);
  lite.insert("deepseek2.leading_dense_block_count", int64_t{1});
  lite.insert("deepseek2.expert_weights_norm", false);
  const ModelConfig c = config(lite);
  EXPECT_EQ(c.mixture.router.score, RouterShape::Score::kSoftmax);
  EXPECT_FALSE(c.mixture.router.normalised);
  EXPECT_EQ(c.mixture.router.groups, 1u);
  EXPECT_EQ(c.mixture.shared_ffn_dim, 2816u);
  EXPECT_EQ(c.layers_with_experts(), 3u);
  EXPECT_EQ(c.widest_ffn(), 2816u);

  GgufMetadata v3 = deepseek(256, 8, 1, 2.5);
  v3.insert("deepseek2.leading_dense_block_count", int64_t{3});
  v3.insert("deepseek2.expert_weights_norm", true);
  v3.insert("deepseek2.expert_gating_func", int64_t{2});
  v3.insert("deepseek2.expert_group_count", int64_t{8});
  v3.insert("deepseek2.expert_group_used_count", int64_t{4});
  const RouterShape r = config(v3).mixture.router;
  EXPECT_EQ(r.score, RouterShape::Score::kSigmoid);
  EXPECT_TRUE(r.normalised);
  EXPECT_EQ(r.scale, 2.5f);
  EXPECT_EQ(r.groups, 8u);
  EXPECT_EQ(r.groups_used, 4u);
  EXPECT_EQ(config(v3).layers_with_experts(), 1u);
  EXPECT_EQ(config(latent_keys("deepseek2")).layers_with_experts(), 0u);
  v3.insert("deepseek2.attention.temperature_scale", 0.1);
  EXPECT_THAT(refusal(v3, ErrorCode::kUnsupported), HasSubstr("temperature_scale is 0.1: queries that grow"));
}

TEST(Experts, WhatDoesNotFitIsNamed) {
  const auto refused = [](const char* key, int64_t value, ErrorCode code, const char* why) {
    GgufMetadata m = mixture("qwen3moe");
    m.insert(std::string("qwen3moe.") + key, value);
    EXPECT_THAT(refusal(m, code), HasSubstr(why));
  };
  refused("expert_feed_forward_length", 48, ErrorCode::kUnsupported,
          "qwen3moe.expert_feed_forward_length is 48: must be a multiple of 32");
  refused("expert_gating_func", 7, ErrorCode::kUnsupported,
          "qwen3moe.expert_gating_func is 7: supported are");
  refused("expert_group_count", 3, ErrorCode::kCorrupt, "expert_count is 8, of which 3 groups of 3");
  refused("interleave_moe_layer_step", 2, ErrorCode::kUnsupported, "interleave_moe_layer_step is 2");
  refused("leading_dense_block_count", 9, ErrorCode::kCorrupt, "leading_dense_block_count");
  EXPECT_THAT(refusal(mixture("qwen3moe", 4, 5), ErrorCode::kCorrupt),
              HasSubstr("qwen3moe.expert_used_count is 5, and qwen3moe.expert_count 4"));
  EXPECT_THAT(refusal(keys("olmoe"), ErrorCode::kCorrupt), HasSubstr("olmoe.expert_count"));
}

TEST(Experts, OfAnArchitectureThatHasNoneAreRefused) {
  EXPECT_THAT(
      refusal(mixture("qwen2"), ErrorCode::kUnsupported),
      HasSubstr("qwen2.expert_count is 8: 'qwen2' is supported without experts; with experts are llama, "
                "qwen2moe, qwen3moe"));
}

TEST(Families, GptOssHasWindowsSinksAndANormOfAnotherName) {
  GgufMetadata m = mixture("gpt-oss");
  m.insert("gpt-oss.attention.sliding_window", int64_t{128});
  const ModelConfig c = config(m);
  EXPECT_THAT(c.windows, ElementsAre(128, 0, 128, 0));
  EXPECT_TRUE(c.attention_sinks);
  EXPECT_FALSE(c.rope_scaling.whole_pairs);
  EXPECT_STREQ(c.ffn_norm, "post_attention_norm");
  EXPECT_EQ(c.activation, Activation::kClampedSwiglu);
}

}  // namespace
}  // namespace kvasir
