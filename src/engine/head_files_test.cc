// Files of draft heads: both ways of naming, and what is wrong with one, by the name of the tensor.

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "engine/head_file_rig.h"

namespace kvasir {
namespace {

TEST_F(HeadFileRig, ReadsMedusaWithTheTargetsOwnRows) {
  add_medusa();
  add_integers("token_map", {60, 2, 5});
  const auto heads = load_medusa(write(), *target, 0);
  ASSERT_TRUE(heads.ok()) << heads.message();
  EXPECT_EQ(heads->heads.size(), 2u);
  EXPECT_EQ(heads->heads[1].size(), 1u);
  EXPECT_EQ(heads->outputs[0], heads->outputs[1]) << "one for both";
  EXPECT_EQ((std::vector<TokenId>(heads->outputs[0]->ids().begin(), heads->outputs[0]->ids().end())),
            (std::vector<TokenId>{2, 5, 60}));
  std::vector<float> want(kWidth), got(kWidth);
  target->read_head_row(60, want.data());
  unpack_column(heads->outputs[0]->rows(), 2, got.data());
  for (uint32_t i = 0; i < kWidth; ++i) EXPECT_NEAR(got[i], want[i], 0.003);
}

TEST_F(HeadFileRig, ReadsMedusaAsItsAuthorsNameIt) {
  for (const std::string prefix : {"", "medusa_heads."}) {
    for (int head = 0; head < 3; ++head) {
      const std::string name = prefix + std::to_string(head);
      add(name + ".0.linear.weight", {kWidth, kWidth});
      add(name + ".1.weight", {70, kWidth});
    }
    const auto heads = load_medusa(write(), *target, 0);
    ASSERT_TRUE(heads.ok()) << heads.message();
    EXPECT_EQ(heads->heads.size(), 3u);
    EXPECT_TRUE(heads->heads[0][0].bias.empty());
    EXPECT_NE(heads->outputs[0], heads->outputs[1]);
    EXPECT_EQ(heads->outputs[2]->ids().size(), 70u);
    for (int head = 0; head < 3; ++head) {
      drop(prefix + std::to_string(head) + ".0.linear.weight");
      drop(prefix + std::to_string(head) + ".1.weight");
    }
  }
}

TEST_F(HeadFileRig, TakesTheFrequentTokensWhereNoneAreListed) {
  add_medusa();
  const auto heads = load_medusa(write(), *target, 20);
  ASSERT_TRUE(heads.ok()) << heads.message();
  EXPECT_EQ(heads->outputs[0]->ids().size(), 20u);
  EXPECT_EQ(heads->outputs[0]->ids().back(), 19);
}

// As vLLM reads config.json's original_lm_head: one output head, that of head 0, whose rows token_map
// chooses.
TEST_F(HeadFileRig, ReadsMedusaWithOneOutputHead) {
  add_medusa();
  add("lm_heads.0.weight", {70, kWidth});
  add("lm_heads.1.weight", {70, kWidth});
  add_integers("token_map", {60, 2, 5});
  write_config(R"({"original_lm_head": true})");
  const auto heads = load_medusa(write(), *target, 0);
  ASSERT_TRUE(heads.ok()) << heads.message();
  EXPECT_EQ(heads->outputs[0], heads->outputs[1]);
  EXPECT_EQ((std::vector<TokenId>(heads->outputs[0]->ids().begin(), heads->outputs[0]->ids().end())),
            (std::vector<TokenId>{2, 5, 60}));
  write_config("{}");
  const auto own = load_medusa(write(), *target, 0);
  ASSERT_TRUE(own.ok()) << own.message();
  EXPECT_NE(own->outputs[0], own->outputs[1]);
  std::filesystem::rename(folder() + "/model.safetensors", folder() + "/medusa_lm_head.safetensors");
  EXPECT_TRUE(load_medusa(folder(), *target, 0).ok());
}

TEST_F(HeadFileRig, SaysWhatIsWrongWithMedusaHeads) {
  EXPECT_NE(medusa_error().find("no Medusa heads"), std::string::npos);
  add_medusa();
  add("blocks.1.layers.0.weight", {kWidth, 16});
  EXPECT_NE(
      medusa_error().find("'blocks.1.layers.0.weight' has shape (32, 16), and this model needs (32, 32)"),
      std::string::npos);
  add_medusa();
  add("blocks.1.layers.1.weight", {kWidth, kWidth});
  EXPECT_NE(medusa_error().find("head 1 has 2 blocks, and head 0 has 1"), std::string::npos);
  drop("blocks.1.layers.1.weight");
  add("surprise", {2});
  EXPECT_NE(medusa_error().find("'surprise'"), std::string::npos);
  drop("surprise");
  add_integers("token_map", {3, 70});
  EXPECT_NE(medusa_error().find("token 70 is none of the model's 70"), std::string::npos);
  add_integers("token_map", {3, 4, 3});
  EXPECT_NE(medusa_error().find("token 3 has two rows"), std::string::npos);
  add_integers("token_map", {3, 4});
  add("lm_head.weight", {3, kWidth});
  EXPECT_NE(medusa_error().find("'lm_head.weight'"), std::string::npos);
  add("lm_head.weight", {2, kWidth});
  EXPECT_EQ(medusa_error(), "");
  EXPECT_EQ(load_medusa("/nowhere.safetensors", *target, 0).status().code(), ErrorCode::kNotFound);
}

// The one layer of this model has too few points for three; a head of a real model is read in
// tests/speculation.
TEST_F(HeadFileRig, Eagle3NeedsPoints) {
  add_eagle3();
  add_integers("d2t", {3, 3, 10});
  EXPECT_NE(eagle_error().find("up to 8 ascending ones of the model's 1"), std::string::npos);
  EXPECT_NE(eagle_error({{"aux_layers", "0,1,1"}}).find("0, 1, 1"), std::string::npos);
  EXPECT_NE(eagle_error({{"aux_layers", "0,x"}}).find("'0,x'"), std::string::npos);
}

TEST_F(HeadFileRig, ReadsEagle1) {
  add_layer("layers.0.", kWidth);
  add("fc.weight", {kWidth, 2 * kWidth});
  add("fc.bias", {kWidth});
  add("embed_tokens.weight", {70, kWidth});
  write_config(R"({"rope_theta": 5000.0, "rms_norm_eps": 0.001, "head_dim": 16, "nested": {"x": [1, 2]}})");
  write();
  const auto head = load_eagle(folder(), *target, 30);
  ASSERT_TRUE(head.ok()) << head.message();
  EXPECT_FALSE(head->fuses_layers);
  EXPECT_EQ(head->config.heads, 2u);
  EXPECT_EQ(head->config.kv_heads, 1u);
  EXPECT_EQ(head->config.ffn_dim, 64u);
  EXPECT_EQ(head->config.rope_base, 5000.0);
  EXPECT_EQ(head->config.norm_eps, 0.001f);
  EXPECT_EQ(head->fc_bias.size(), kWidth);
  EXPECT_EQ(head->points, std::vector<uint32_t>{HiddenTap::kOutputNorm});
  EXPECT_EQ(head->output->ids().size(), 30u);
}

// A config.json means what LlamaConfig has where it says nothing; a file without one goes by the target.
TEST_F(HeadFileRig, TakesLlamasDefaultsOfAConfiguration) {
  add_layer("layers.0.", kWidth);
  add("fc.weight", {kWidth, 2 * kWidth});
  const auto alone = load_eagle(write(), *target, 0);
  ASSERT_TRUE(alone.ok()) << alone.message();
  EXPECT_EQ(alone->config.rope_base, target->config().rope_base);
  EXPECT_EQ(alone->config.norm_eps, target->config().norm_eps);
  EXPECT_EQ(alone->config.windows, std::vector<uint32_t>{0});
  write_config(R"({"hidden_size": 32, "num_attention_heads": 2, "sliding_window": 7,
                   "eagle_config": {"eagle_aux_hidden_state_layer_ids": [], "hidden_size": 5}})");
  const auto head = load_eagle(write(), *target, 0);
  ASSERT_TRUE(head.ok()) << head.message();
  EXPECT_EQ(head->config.rope_base, 10000.0);
  EXPECT_EQ(head->config.norm_eps, 1e-6f);
  EXPECT_EQ(head->config.head_dim, 16u);
  EXPECT_EQ(head->config.windows, std::vector<uint32_t>{0});
  write_config(R"({"layer_types": ["sliding_attention"], "sliding_window": 7})");
  EXPECT_EQ(load_eagle(write(), *target, 0)->config.windows, std::vector<uint32_t>{7});
  write_config(R"({"layer_types": ["sliding_attention"]})");
  EXPECT_NE(eagle_error().find("sliding_window 0: 1 or more"), std::string::npos) << eagle_error();
}

// As the speculators library names it, with everything that some files have.
TEST_F(HeadFileRig, ReadsVariantsOfEagle3) {
  add_layer("layers.0.", 2 * kWidth);
  add("fc.weight", {kWidth, 2 * kWidth});
  for (const char* name : {"layers.0.input_layernorm.weight", "layers.0.hidden_norm.weight", "norm.weight",
                           "fc_norm.0.weight", "fc_norm.1.weight", "layers.0.self_attn.o_proj.bias"})
    add(name, {kWidth});
  add("input_norm.weight", {2 * kWidth});
  add("layers.0.self_attn.q_proj.bias", {32});
  add("layers.0.self_attn.k_proj.bias", {16});
  add("layers.0.self_attn.v_proj.bias", {16});
  add("layers.0.self_attn.q_norm.weight", {16});
  add("layers.0.self_attn.k_norm.weight", {16});
  add("embed_tokens.weight", {72, kWidth});
  write_config(R"({"speculators_model_type": "eagle3", "norm_before_fc": true, "fc_norm": true,
                   "norm_output": true, "eagle_aux_hidden_state_layer_ids": [0, 1],
                   "transformer_layer_config": {"head_dim": 16, "rope_theta": 100.0, "hidden_size": 32,
                     "rope_scaling": {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0,
                       "high_freq_factor": 4.0, "original_max_position_embeddings": 64}}})");
  const auto head = load_eagle(write(), *target, 0);
  ASSERT_TRUE(head.ok()) << head.message();
  EXPECT_TRUE(head->fuses_layers && head->norm_before_residual && head->norm_output);
  EXPECT_EQ(head->points, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(head->features_norm.size(), 2 * kWidth);
  EXPECT_EQ(head->layer_norms.size(), 2 * kWidth);
  EXPECT_EQ(head->q_bias.size() + head->k_bias.size() + head->v_bias.size() + head->o_bias.size(), 96u);
  EXPECT_EQ(head->q_norm.size() + head->k_norm.size(), 32u);
  EXPECT_EQ(head->config.head_norm, HeadNorm::kSharedWeights);
  EXPECT_TRUE(head->embedding.present()) << "all values the same: not the model's";
  EXPECT_EQ(head->embedding.packed().n, 70u);
  // Waves of 2 pi 100^(i / 8) positions: 6.3, 11.2, 19.9, 35.3, 62.8, 111.7, 198.7, 353.3, of a context of
  // 64. Four and more fit: as it is; less than one: eight times as slow; between, 64 / wave = 3.22, 1.81 and
  // 1.02 of 1 to 4 keep 0.740, 0.270 and 0.006.
  ASSERT_EQ(head->rope_factors.size(), 8u);
  EXPECT_EQ(head->rope_factors[0], 1.0f);
  EXPECT_EQ(head->rope_factors[1], 1.0f);
  EXPECT_NEAR(head->rope_factors[2], 1.29398, 1e-4);
  EXPECT_NEAR(head->rope_factors[3], 2.76517, 1e-4);
  EXPECT_NEAR(head->rope_factors[4], 7.66739, 1e-4);
  EXPECT_EQ(head->rope_factors[5], 8.0f);
  drop("fc_norm.1.weight");
  EXPECT_NE(eagle_error().find("'fc_norm.1.weight' is missing"), std::string::npos);
}

TEST_F(HeadFileRig, RefusesWhatItCannotRun) {
  add_eagle3();
  add("fc.weight", {kWidth, 2 * kWidth});
  const auto refuses = [&](const std::map<std::string, std::string>& more, const std::string& words) {
    std::map<std::string, std::string> metadata = {{"aux_layers", "0,1"}};
    metadata.insert(more.begin(), more.end());
    EXPECT_NE(eagle_error(metadata).find(words), std::string::npos) << eagle_error(metadata);
  };
  EXPECT_EQ(eagle_error({{"aux_layers", "0,1"}}), "");
  refuses({{"target_hidden_size", "64"}}, "target_hidden_size is 64, and the model is 32 wide");
  refuses({{"hidden_size", "48"}}, "hidden_size is 48");
  refuses({{"num_hidden_layers", "2"}}, "several layers");
  refuses({{"use_aux_hidden_state", "false"}}, "use_aux_hidden_state");
  refuses({{"hidden_act", "gelu"}}, "hidden_act is 'gelu'");
  refuses({{"partial_rotary_factor", "0.5"}}, "partial_rotary_factor is 0.5");
  refuses({{"rope_type", "linear"}}, "the factor of RoPE scaling 'linear' is 0");
  refuses({{"rope_type", "llama3"}, {"factor", "8"}}, "original_max_position_embeddings");
  refuses({{"norm_before_fc", "true"}}, "'input_norm.weight' is missing");
  add("mask_hidden", {1, 2 * kWidth});
  refuses({}, "'mask_hidden'");
  drop("mask_hidden");
  add("embed_tokens.weight", {69, kWidth});
  refuses({}, "has 69 rows, and the model 70 tokens");
  drop("embed_tokens.weight");
  write_config("{}");
  std::filesystem::remove(write());
  EXPECT_NE(load_eagle(folder(), *target, 0).message().find("no model.safetensors"), std::string::npos);
  std::ofstream(folder() + "/pytorch_model.bin") << "PK";
  EXPECT_NE(load_eagle(folder(), *target, 0).message().find("PyTorch pickle"), std::string::npos);
  EXPECT_NE(load_eagle(folder() + "/pytorch_model.bin", *target, 0).message().find("PyTorch pickle"),
            std::string::npos);
}

TEST_F(HeadFileRig, RefusesValuesThatAreNoNumbers) {
  add_medusa();
  add("blocks.1.layers.0.bias", {kWidth}, std::nanf(""));
  EXPECT_NE(medusa_error().find("tensor 'blocks.1.layers.0.bias': value 31 of 32 is nan"), std::string::npos)
      << medusa_error();
  add("blocks.1.layers.0.bias", {kWidth});
  add("blocks.0.layers.0.weight", {kWidth, kWidth}, -HUGE_VALF);
  EXPECT_NE(medusa_error().find("value 1023 of 1024 is -inf"), std::string::npos) << medusa_error();
}

// Opening a pipe that nobody writes to would wait for ever.
TEST_F(HeadFileRig, WaitsAtNoPipe) {
  const std::string pipe = folder() + "/pipe.safetensors";
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  EXPECT_NE(load_eagle(pipe, *target, 0).message().find("not a regular file"), std::string::npos);
  add_medusa();
  write();
  ASSERT_EQ(mkfifo((folder() + "/config.json").c_str(), 0600), 0);
  EXPECT_NE(load_medusa(folder(), *target, 0).message().find("config.json' is not a regular file"),
            std::string::npos);
}

TEST_F(HeadFileRig, SaysWhatIsWrongWithAnEagleHead) {
  add_layer("layers.0.", kWidth);
  EXPECT_NE(eagle_error().find("'fc.weight' is missing"), std::string::npos);
  add("fc.weight", {kWidth, kWidth});
  EXPECT_NE(eagle_error().find("'fc.weight' has shape (32, 32), and this model needs (32, 64)"),
            std::string::npos);
  add("fc.weight", {kWidth, 2 * kWidth});
  EXPECT_EQ(eagle_error(), "");
  EXPECT_NE(eagle_error({{"head_dim", "24"}}).find("heads of 24"), std::string::npos);
  EXPECT_NE(eagle_error({{"head_dim", "-16"}}).find("-16"), std::string::npos);
  EXPECT_NE(eagle_error({{"norm_before_fc", "true"}}).find("norm_before_fc"), std::string::npos);
  add("layers.0.input_layernorm.weight", {kWidth});
  EXPECT_NE(eagle_error().find("'layers.0.input_layernorm.weight'"), std::string::npos);
  drop("layers.0.input_layernorm.weight");
  add_integers("d2t", {0, INT64_MAX});
  EXPECT_NE(eagle_error().find("token -1"), std::string::npos);
  write_config("[]");
  EXPECT_NE(eagle_error().find("config.json"), std::string::npos);
}

}  // namespace
}  // namespace kvasir
