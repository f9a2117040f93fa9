// Files of draft heads: both ways of naming, and what is wrong with one, by the name of the tensor.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/eagle_file.h"
#include "engine/medusa_file.h"
#include "gguf/gguf_builder.h"
#include "models/heads_rig.h"
#include "safetensors/safetensors_writer.h"

namespace kvasir {
namespace {

constexpr uint64_t kWidth = 32;

// A file that is put together tensor by tensor; every value of a float tensor is 0.25.
class HeadFileRig : public HeadsRig, public testing::Test {
 protected:
  HeadFileRig() : HeadsRig(1) {
    folder_ = std::filesystem::path(testing::TempDir()) /
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directories(folder_);
  }
  ~HeadFileRig() override { std::filesystem::remove_all(folder_); }

  void add(const std::string& name, std::vector<uint64_t> shape) {
    uint64_t count = 1;
    for (const uint64_t n : shape) count *= n;
    std::vector<float> values(count, 0.25f);
    const auto bytes = std::as_bytes(std::span(values));
    drop(name);
    tensors_.push_back({{name, find_safe_type("F32"), std::move(shape)}, {bytes.begin(), bytes.end()}});
  }
  void add_integers(const std::string& name, const std::vector<int64_t>& values) {
    const auto bytes = std::as_bytes(std::span(values));
    drop(name);
    tensors_.push_back({{name, find_safe_type("I64"), {values.size()}}, {bytes.begin(), bytes.end()}});
  }
  void drop(const std::string& name) {
    std::erase_if(tensors_, [&](const Tensor& t) { return t.entry.name == name; });
  }
  std::string write(const std::map<std::string, std::string>& metadata = {}) {
    const std::string path = (folder_ / "model.safetensors").string();
    std::vector<SafetensorsWriter::Entry> entries;
    for (const Tensor& t : tensors_) entries.push_back(t.entry);
    auto writer = SafetensorsWriter::create(path, entries, metadata);
    EXPECT_TRUE(writer.ok()) << writer.message();
    for (const Tensor& t : tensors_) EXPECT_TRUE(writer->append(t.bytes).ok());
    EXPECT_TRUE(writer->finish().ok());
    return path;
  }
  void write_config(const std::string& text) { std::ofstream(folder_ / "config.json") << text; }
  std::string folder() const { return folder_.string(); }

  void add_medusa(const std::string& prefix = "") {
    for (int head = 0; head < 2; ++head) {
      const std::string block = prefix + "blocks." + std::to_string(head) + ".layers.0.";
      add(block + "weight", {kWidth, kWidth});
      add(block + "bias", {kWidth});
    }
  }
  void add_layer(const std::string& layer, uint64_t inputs) {
    add(layer + "self_attn.q_proj.weight", {32, inputs});
    add(layer + "self_attn.k_proj.weight", {16, inputs});
    add(layer + "self_attn.v_proj.weight", {16, inputs});
    add(layer + "self_attn.o_proj.weight", {kWidth, 32});
    add(layer + "mlp.gate_proj.weight", {64, kWidth});
    add(layer + "mlp.up_proj.weight", {64, kWidth});
    add(layer + "mlp.down_proj.weight", {kWidth, 64});
    add(layer + "post_attention_layernorm.weight", {kWidth});
  }
  void add_eagle3() {
    add_layer("midlayer.", 2 * kWidth);
    add("fc.weight", {kWidth, 3 * kWidth});
    for (const char* name : {"midlayer.input_layernorm.weight", "midlayer.hidden_norm.weight", "norm.weight"})
      add(name, {kWidth});
  }

  std::string medusa_error() {
    const auto loaded = load_medusa(write(), *target, 0);
    return loaded.ok() ? "" : loaded.message();
  }
  std::string eagle_error(const std::map<std::string, std::string>& metadata = {}) {
    const auto loaded = load_eagle(write(metadata), *target, 0);
    return loaded.ok() ? "" : loaded.message();
  }

 private:
  struct Tensor {
    SafetensorsWriter::Entry entry;
    std::vector<std::byte> bytes;
  };
  std::filesystem::path folder_;
  std::vector<Tensor> tensors_;
};

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

// A GGUF file of architecture eagle3; value i of a tensor is i, of rows of 64 inputs row + input / 64.
class GgufHeadRig : public HeadFileRig {
 protected:
  GgufHeadRig() {
    file.string("general.architecture", "eagle3").u32("eagle3.block_count", 1);
    file.u32("eagle3.embedding_length", kWidth).u32("eagle3.target_hidden_size", kWidth);
    file.u32("eagle3.attention.head_count", 2).u32("eagle3.attention.head_count_kv", 1);
    file.u32("eagle3.attention.key_length", 16);
    file.f32("eagle3.attention.layer_norm_rms_epsilon", 0.001f).f32("eagle3.rope.freq_base", 5000);
    add("fc.weight", {2 * kWidth, kWidth});
    for (const char* name : {"output_norm", "blk.0.attn_norm", "blk.0.attn_norm_2", "blk.0.ffn_norm"})
      add(std::string(name) + ".weight", {kWidth});
    add("blk.0.attn_q.weight", {2 * kWidth, 32});
    add("blk.0.attn_k.weight", {2 * kWidth, 16});
    add("blk.0.attn_v.weight", {2 * kWidth, 16});
    add("blk.0.attn_output.weight", {32, kWidth});
    add("blk.0.ffn_gate.weight", {kWidth, 64});
    add("blk.0.ffn_up.weight", {kWidth, 64});
    add("blk.0.ffn_down.weight", {64, kWidth});
    ByteWriter ids;
    for (const int64_t id : {3, 40, 9}) ids.put(id);
    file.tensor("d2t", 27, {3}, ids.bytes());
  }
  void layers(const std::vector<int32_t>& numbers, const char* key = "eagle3.target_layers") {
    ByteWriter out;
    out.put(uint32_t{5}).put(uint64_t{numbers.size()});
    for (const int32_t n : numbers) out.put(n);
    file.pair(key, 9, out);
  }
  void add(const std::string& name, const std::vector<uint64_t>& dims) {
    uint64_t count = 1;
    for (const uint64_t n : dims) count *= n;
    ByteWriter values;
    for (uint64_t i = 0; i < count; ++i) values.put(static_cast<float>(i) / 64);
    file.tensor(name, 0, dims, values.bytes());
  }
  Result<EagleWeights> load() {
    const std::vector<std::byte> bytes = file.build();
    const std::string path = folder() + "/head.gguf";
    std::ofstream(path, std::ios::binary)
        .write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    return load_eagle(path, *target, 0);
  }
  GgufBuilder file;
};

TEST_F(GgufHeadRig, ReadsIt) {
  layers({0, 1});
  const auto head = load();
  ASSERT_TRUE(head.ok()) << head.message();
  EXPECT_TRUE(head->fuses_layers && !head->norm_before_residual);
  EXPECT_EQ(head->points, (std::vector<uint32_t>{0, 1}));
  EXPECT_EQ(head->config.heads, 2u);
  EXPECT_EQ(head->config.kv_heads, 1u);
  EXPECT_EQ(head->config.rope_base, 5000);
  EXPECT_EQ(head->config.norm_eps, 0.001f);
  EXPECT_EQ((std::vector<TokenId>(head->output->ids().begin(), head->output->ids().end())),
            (std::vector<TokenId>{3, 9, 40}));
  EXPECT_EQ(head->hidden_norm[31], 31.0f / 64);
  // Of each head's 16 rows the even ones first, then the odd ones; v stays as it is.
  std::vector<float> row(2 * kWidth);
  const auto first_of = [&](const OwnMatrix& m, uint32_t n) {
    unpack_column(m.packed(), n, row.data());
    return row[0];
  };
  EXPECT_NEAR(first_of(head->q, 1), 2, 0.1);
  EXPECT_NEAR(first_of(head->q, 8), 1, 0.1);
  EXPECT_NEAR(first_of(head->q, 15), 15, 0.1);
  EXPECT_NEAR(first_of(head->q, 17), 18, 0.2);
  EXPECT_NEAR(first_of(head->k, 9), 3, 0.1);
  EXPECT_NEAR(first_of(head->v, 9), 9, 0.1);
}

TEST_F(GgufHeadRig, ReadsTheNormBeforeFcAndEarlierNames) {
  layers({0, 1}, "eagle3.extract_layers");
  add("enc.output_norm.weight", {2 * kWidth});
  add("rope_freqs.weight", {8});
  file.pair("eagle3.norm_before_fc", 7, ByteWriter().put(uint8_t{1}));
  file.pair("eagle3.norm_before_residual", 7, ByteWriter().put(uint8_t{1}));
  const auto head = load();
  ASSERT_TRUE(head.ok()) << head.message();
  EXPECT_EQ(head->features_norm.size(), 2 * kWidth);
  EXPECT_EQ(head->rope_factors.size(), 8u);
  EXPECT_TRUE(head->norm_before_residual);
}

TEST_F(GgufHeadRig, SaysWhatIsWrong) {
  EXPECT_NE(load().message().find("'eagle3.target_layers' is missing"), std::string::npos);
  layers({0, 1});
  EXPECT_TRUE(load().ok());
  add("blk.0.surprise.weight", {2});
  EXPECT_NE(load().message().find("'blk.0.surprise.weight' is not one that such a head has"),
            std::string::npos);
  const auto medusa = load_medusa(folder() + "/head.gguf", *target, 0);
  EXPECT_NE(medusa.message().find("eagle=FILE"), std::string::npos);
  GgufBuilder model;
  model.string("general.architecture", "llama");
  std::swap(file, model);
  EXPECT_NE(load().message().find("draft=FILE"), std::string::npos);
}

}  // namespace
}  // namespace kvasir
