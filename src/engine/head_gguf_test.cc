// Draft heads as GGUF files of architecture eagle3, as llama.cpp's converter writes them.

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "engine/head_file_rig.h"
#include "gguf/gguf_builder.h"

namespace kvasir {
namespace {

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
