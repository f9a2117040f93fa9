#include "perf/model_shape.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>
#include <filesystem>
#include <fstream>

#include "gguf/gguf_builder.h"
#include "perf/kv_formulas.h"
#include "perf/parameter_formulas.h"

namespace kvasir {

namespace embedded {
extern const std::string_view models_json;
}

namespace {

using testing::HasSubstr;
using Windows = std::vector<uint32_t>;

ModelShape named(std::string_view name) {
  const Result<ModelShape> shape = shape_by_name(name);
  EXPECT_TRUE(shape.ok()) << shape.message();
  return shape.ok() ? *shape : ModelShape();
}

ModelShape config(const std::string& json) {
  const Result<ModelShape> shape = shape_from_config(json, "test");
  EXPECT_TRUE(shape.ok()) << shape.message();
  return shape.ok() ? *shape : ModelShape();
}

std::string refusal(const std::string& json) {
  const Result<ModelShape> shape = shape_from_config(json, "test");
  EXPECT_FALSE(shape.ok()) << json;
  return shape.ok() ? "" : shape.message();
}

// What publishers count is what the shape counts, so every number of the row is right.
TEST(ModelTable, CountsWhatPublishersCount) {
  const boost::json::value root =
      boost::json::parse({embedded::models_json.data(), embedded::models_json.size()});
  int compared = 0;
  for (const auto& value : root.at("models").as_array()) {
    const auto& row = value.as_object();
    const std::string name(row.at("name").as_string());
    EXPECT_THAT(std::string(row.at("source").as_string()), testing::StartsWith("https://")) << name;
    if (!row.contains("parameters")) continue;
    EXPECT_EQ(count_parameters(named(name)).total(), row.at("parameters").to_number<uint64_t>()) << name;
    ++compared;
  }
  EXPECT_GE(compared, 30);
}

TEST(ModelTable, CaseAndPunctuationDoNotMatter) {
  EXPECT_EQ(named("llama-2_7B").name, "Llama 2 7B");
  EXPECT_EQ(named("LLAMA 2 7b").layers, 32u);
  EXPECT_EQ(named("Meta-Llama-3-8B-Instruct").vocab, 128256u);
  EXPECT_EQ(named("qwen3 30b a3b").moe->experts_used, 8u);
}

TEST(ModelTable, AnUnknownNameSuggestsTheNearest) {
  const Result<ModelShape> shape = shape_by_name("Lama 2 13B");
  ASSERT_FALSE(shape.ok());
  EXPECT_EQ(shape.status().code(), ErrorCode::kNotFound);
  EXPECT_THAT(shape.message(), HasSubstr("no model is known as 'Lama 2 13B'; did you mean Llama 2 13B"));
  EXPECT_THAT(shape_by_name("Smol").message(), HasSubstr("SmolLM2 135M"));
  EXPECT_THAT(shape_by_name("zzzzzzzzzzzzzzzz").message(), testing::Not(HasSubstr("did you mean")));
}

TEST(ModelTable, SaysHowHeadsAreShared) {
  EXPECT_EQ(named("Llama 2 7B").attention(), AttentionKind::kMha);
  EXPECT_EQ(named("Llama 3.1 8B").attention(), AttentionKind::kGqa);
  EXPECT_EQ(named("Gemma 3 1B").attention(), AttentionKind::kMqa);
  EXPECT_EQ(named("DeepSeek-V3").attention(), AttentionKind::kMla);
  EXPECT_EQ(attention_kind_name(named("DeepSeek-V3").attention()), "MLA");
}

TEST(ModelTable, KnowsWhichLayersSeeAWindow) {
  EXPECT_EQ(named("Gemma 3 270M").windowed_layers(), 15u);  // 18 less 5, 11 and 17
  EXPECT_EQ(named("Gemma 3 270M").windows[5], 0u);
  EXPECT_EQ(named("Gemma 3 270M").windows[4], 512u);
  EXPECT_EQ(named("Gemma 2 2B").windows[0], 4096u);
  EXPECT_EQ(named("Gemma 2 2B").windows[1], 0u);
  EXPECT_EQ(named("Mistral 7B").windowed_layers(), 32u);
  EXPECT_EQ(named("Mistral 7B v0.3").windowed_layers(), 0u);
  EXPECT_EQ(named("Qwen2.5 7B").windowed_layers(), 0u);
}

TEST(ModelConfigJson, AbsentFieldsTakeDefaults) {
  const ModelShape s = config(R"({"model_type": "llama", "vocab_size": 1000, "hidden_size": 256,
    "intermediate_size": 512, "num_hidden_layers": 3, "num_attention_heads": 8})");
  EXPECT_EQ(s.kv_heads, 8u);
  EXPECT_EQ(s.head_dim, 32u);
  EXPECT_FALSE(s.tied_embeddings);
  EXPECT_EQ(s.windows, (Windows{0, 0, 0}));
  EXPECT_EQ(s.weights.bits, 16);
}

TEST(ModelConfigJson, ReadsTheTextPartOfAMultimodalModel) {
  // As Gemma 3 4B's: most numbers are the class's defaults.
  const ModelShape s = config(R"({"model_type": "gemma3", "torch_dtype": "bfloat16", "text_config": {
    "hidden_size": 2560, "intermediate_size": 10240, "model_type": "gemma3_text", "num_hidden_layers": 34,
    "sliding_window": 1024}, "vision_config": {"hidden_size": 1152}})");
  EXPECT_EQ(s.heads, 8u);
  EXPECT_EQ(s.kv_heads, 4u);
  EXPECT_EQ(s.head_dim, 256u);
  EXPECT_EQ(s.vocab, 262208u);
  EXPECT_TRUE(s.tied_embeddings);
  EXPECT_EQ(s.windowed_layers(), 29u);  // 34 less 5, 11, 17, 23, 29
  EXPECT_EQ(s.weights.name, "BF16");
}

TEST(ModelConfigJson, LayerTypesNameTheWindowedLayers) {
  const ModelShape s = config(R"({"model_type": "qwen3", "hidden_size": 64, "intermediate_size": 64,
    "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 1, "use_sliding_window": true,
    "sliding_window": 16, "layer_types": ["full_attention", "sliding_attention"]})");
  EXPECT_EQ(s.windows, (Windows{0, 16}));
  EXPECT_EQ(s.head_dim, 128u);
}

TEST(ModelConfigJson, QwenSharesOneExpert) {
  const ModelShape s = config(R"({"model_type": "qwen2_moe", "vocab_size": 100, "hidden_size": 64,
    "intermediate_size": 5632, "num_hidden_layers": 2, "num_attention_heads": 2, "num_key_value_heads": 2,
    "num_experts": 60, "num_experts_per_tok": 4, "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632, "decoder_sparse_step": 1})");
  EXPECT_EQ(s.moe->experts, 60u);
  EXPECT_EQ(s.moe->shared_ffn_dim, 5632u);
  EXPECT_TRUE(s.moe->shared_gate);
  EXPECT_TRUE(s.qkv_bias);
  EXPECT_EQ(s.dense_layers(), 0u);
}

TEST(ModelConfigJson, QuantisationChangesTheFormat) {
  EXPECT_EQ(named("DeepSeek-V3").weights.bits, 8);
  const ModelShape s = config(R"({"model_type": "llama", "vocab_size": 10, "hidden_size": 8,
    "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "torch_dtype": "float16",
    "quantization_config": {"quant_method": "awq", "bits": 4}})");
  EXPECT_EQ(s.weights.bits, 4);
  EXPECT_EQ(s.weights.name, "awq 4-bit");
}

TEST(ModelConfigJson, FaultsNameTheField) {
  EXPECT_THAT(refusal("{"), HasSubstr("not JSON"));
  EXPECT_THAT(refusal("{}"), HasSubstr("'model_type' is missing"));
  EXPECT_THAT(refusal(R"({"model_type": "mamba"})"), HasSubstr("'mamba': known are llama, mistral"));
  EXPECT_THAT(refusal(R"({"model_type": "llama"})"), HasSubstr("'hidden_size' is missing"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "hidden_size": -1})"), HasSubstr("'hidden_size' is -1"));
  EXPECT_THAT(refusal(R"({"model_type": "llama", "hidden_size": 64, "intermediate_size": 64,
    "num_hidden_layers": 1, "num_attention_heads": 7, "num_key_value_heads": 2})"),
              HasSubstr("7 query heads cannot share 2 KV heads"));
}

// A header of heads that the engine does not run, in both layouts of the keys.
GgufBuilder deepseek(bool present) {
  GgufBuilder b;
  b.string("general.architecture", "deepseek2").string("general.name", "tiny");
  b.u32("deepseek2.block_count", 2)
      .u32("deepseek2.embedding_length", 64)
      .u32("deepseek2.context_length", 4096);
  b.u32("deepseek2.feed_forward_length", 96).u32("deepseek2.attention.head_count", 4);
  b.u32("deepseek2.attention.kv_lora_rank", 32).u32("deepseek2.rope.dimension_count", 16);
  b.u32("deepseek2.attention.head_count_kv", present ? 1 : 4);
  b.u32("deepseek2.attention.key_length", present ? 48 : 40)
      .u32("deepseek2.attention.value_length", present ? 32 : 24);
  if (present)
    b.u32("deepseek2.attention.key_length_mla", 40).u32("deepseek2.attention.value_length_mla", 24);
  b.u32("deepseek2.expert_count", 8)
      .u32("deepseek2.expert_used_count", 2)
      .u32("deepseek2.expert_shared_count", 2);
  b.u32("deepseek2.expert_feed_forward_length", 32).u32("deepseek2.leading_dense_block_count", 1);
  b.tensor("token_embd.weight", 8, {64, 10}, std::vector<std::byte>(640 / 32 * 34));
  b.tensor("output.weight", 1, {64, 10}, std::vector<std::byte>(1280));
  b.tensor("blk.0.attn_norm.weight", 0, {64}, std::vector<std::byte>(256));
  b.tensor("blk.0.ffn_gate.weight", 1, {64, 96}, std::vector<std::byte>(64 * 96 * 2));
  return b;
}

TEST(GgufShape, ReadsWhatTheEngineCannotRun) {
  for (const bool present : {true, false}) {
    const std::vector<std::byte> bytes = deepseek(present).build();
    const auto file = GgufFile::parse(bytes, "tiny.gguf");
    ASSERT_TRUE(file.ok()) << file.message();
    const auto s = shape_from_gguf(*file);
    ASSERT_TRUE(s.ok()) << s.message();
    EXPECT_EQ(s->attention(), AttentionKind::kMla);
    EXPECT_EQ(s->vocab, 10u);
    EXPECT_EQ(s->kv_heads, 4u);
    EXPECT_EQ(s->mla->qk_nope_head_dim, 24u);
    EXPECT_EQ(s->mla->v_head_dim, 24u);
    EXPECT_EQ(s->moe->shared_ffn_dim, 64u);
    EXPECT_EQ(s->moe_layers(), 1u);
    EXPECT_FALSE(s->tied_embeddings);
    // 680 + 1280 + 256 + 12288 bytes; 640 + 640 + 64 + 6144 weights.
    EXPECT_EQ(s->stored_bytes, 14504u);
    EXPECT_EQ(s->stored_embedding_bytes, 680u);
    EXPECT_EQ(s->stored_parameters, 7488u);
    EXPECT_EQ(parameter_bytes(*s), 14504);
    EXPECT_DOUBLE_EQ(s->weights.bits, 8.0 * 14504 / 7488);
    EXPECT_EQ(s->weights.name, "F16 mostly");
    EXPECT_EQ(kv_bytes_per_token(*s, KvFormat()), 2 * (32 + 16) * 2);
  }
}

GgufBuilder windowed(std::string_view arch) {
  GgufBuilder b;
  const std::string a(arch);
  b.string("general.architecture", arch);
  b.u32(a + ".block_count", 4).u32(a + ".embedding_length", 64).u32(a + ".feed_forward_length", 64);
  b.u32(a + ".attention.head_count", 4).u32(a + ".attention.head_count_kv", 2);
  b.u32(a + ".attention.sliding_window", 8);
  b.tensor("token_embd.weight", 1, {64, 10}, std::vector<std::byte>(1280));
  return b;
}

Result<ModelShape> shape_of(const GgufBuilder& b) {
  const std::vector<std::byte> bytes = b.build();
  const auto file = GgufFile::parse(bytes, "w.gguf");
  EXPECT_TRUE(file.ok());
  return shape_from_gguf(*file);
}

// Of architectures that the engine does not run; what it runs says its windows itself.
TEST(GgufShape, WindowsFollowTheArchitecture) {
  GgufBuilder b = windowed("someday");
  b.u32("someday.attention.sliding_window_pattern", 3);
  EXPECT_EQ(shape_of(b)->windows, (Windows{8, 8, 0, 8}));
  EXPECT_EQ(shape_of(b)->head_dim, 16u);
  EXPECT_TRUE(shape_of(b)->tied_embeddings);
  EXPECT_EQ(shape_of(b)->ffn_matrices, 2u);  // there is no gate
}

TEST(GgufShape, LayersThatDifferAreRefused) {
  GgufBuilder b = windowed("someday");
  ByteWriter lengths;
  lengths.put(uint32_t{5}).put(uint64_t{2}).put(int32_t{512}).put(int32_t{512});
  b.pair("someday.expert_feed_forward_length", 9, lengths);
  EXPECT_TRUE(shape_of(b).ok());
  ByteWriter differ;
  differ.put(uint32_t{5}).put(uint64_t{2}).put(int32_t{1}).put(int32_t{2});
  b.pair("someday.context_length", 9, differ);
  EXPECT_THAT(shape_of(b).message(),
              HasSubstr("metadata key 'someday.context_length' differs by layer (1 and 2)"));
}

TEST(GgufShape, FaultsNameTheKey) {
  GgufBuilder b;
  b.string("general.architecture", "mamba");
  const std::vector<std::byte> bytes = b.build();
  const auto file = GgufFile::parse(bytes, "m.gguf");
  ASSERT_TRUE(file.ok());
  const auto s = shape_from_gguf(*file);
  ASSERT_FALSE(s.ok());
  EXPECT_THAT(s.message(), HasSubstr("metadata key 'mamba.embedding_length' is missing"));
}

// The same model from its file and from the table.
TEST(GgufShape, AgreesWithTheTable) {
  const std::string path = KVASIR_SOURCE_DIR "/models/smollm2-135m-instruct-q4_1.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is absent: tools/fetch_models.py fetches it";
  const auto file = resolve_shape(path);
  ASSERT_TRUE(file.ok()) << file.message();
  const ModelShape table = named("SmolLM2 135M");
  EXPECT_EQ(file->stored_parameters, count_parameters(table).total());
  EXPECT_EQ(count_parameters(*file).total(), *file->stored_parameters);
  EXPECT_EQ(file->head_dim, table.head_dim);
  EXPECT_TRUE(file->tied_embeddings);
  EXPECT_EQ(kv_bytes_per_token(*file, KvFormat()), 23040);
}

TEST(ResolveShape, TakesAConfigAFolderAndAName) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "My-Model";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << R"({"model_type": "llama", "vocab_size": 10, "hidden_size": 8,
    "intermediate_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1})";
  for (const std::string& path : {folder.string(), (folder / "config.json").string()}) {
    const auto s = resolve_shape(path);
    ASSERT_TRUE(s.ok()) << s.message();
    EXPECT_EQ(s->name, "My-Model");
    EXPECT_EQ(s->source, (folder / "config.json").string());
  }
  for (const char* path : {".", "./", "../My-Model"})
    EXPECT_EQ(resolve_shape((folder / path).string())->name, "My-Model") << path;
  EXPECT_EQ(resolve_shape("gemma 3 270m")->hidden, 640u);
  EXPECT_THAT(resolve_shape("no/such/config.json").message(), HasSubstr("no such file"));
  EXPECT_THAT(resolve_shape("nosuch.gguf").message(), HasSubstr("nosuch.gguf"));
  EXPECT_THAT(resolve_shape("meta-llama/Llama-2-7b").message(),
              HasSubstr("is no file, and no model is known"));
  std::filesystem::remove_all(folder);
}

TEST(WeightFormat, KnowsTypesAndMixtures) {
  EXPECT_EQ(parse_weight_format("bf16")->bits, 16);
  EXPECT_EQ(parse_weight_format("q4_0")->bits, 4.5);  // 18 bytes for 32
  EXPECT_EQ(parse_weight_format("Q4_K")->bits, 4.5);  // 144 bytes for 256
  EXPECT_EQ(parse_weight_format("Q4_K_M")->bits, 4.8944);
  EXPECT_EQ(parse_weight_format("float32")->bits, 32);
  EXPECT_EQ(parse_weight_format("bf16")->bytes(10), 20);
  EXPECT_THAT(parse_weight_format("q9").message(),
              HasSubstr("unknown weight format 'q9': choose one of F32"));
  EXPECT_EQ(parse_kv_format("int8")->scale_bytes, 8u);
  EXPECT_EQ(parse_kv_format("auto")->name, "f16");
  EXPECT_EQ(parse_kv_format("q8_0")->bits, 8.5);
  EXPECT_THAT(parse_kv_format("int3").message(), HasSubstr("unknown KV type 'int3'"));
}

}  // namespace
}  // namespace kvasir
