// Files of draft heads: both ways of naming, and what is wrong with one, by the name of the tensor.

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>

#include "engine/eagle_file.h"
#include "engine/medusa_file.h"
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

// The one layer of this model has too few points; a head of a real model is read in tests/speculation.
TEST_F(HeadFileRig, Eagle3NeedsThreePoints) {
  add_eagle3();
  add_integers("d2t", {3, 3, 10});
  EXPECT_NE(eagle_error().find("three ascending ones of the model's 1"), std::string::npos);
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
