// What `kvasir inspect` and `kvasir plan` say of the small models of every architecture, and their
// tokenizers.

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

#include "models/model_config.h"
#include "perf/model_shape.h"
#include "perf/parameter_formulas.h"
#include "tests/tiny_fixture.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/tokenizer_fixture.h"

namespace kvasir {
namespace {

class EveryShape : public testing::TestWithParam<std::string> {};

TEST_P(EveryShape, ItsShapeCountsItsParameters) {
  const GgufFile file = open_tiny(GetParam());
  const auto shape = shape_from_gguf(file);
  ASSERT_TRUE(shape.ok()) << shape.message();
  const auto config = read_model_config(file.metadata());
  ASSERT_TRUE(config.ok()) << config.message();
  EXPECT_EQ(shape->windows, config->windows);
  EXPECT_EQ(shape->mla.has_value(), config->mla.has_value());
  EXPECT_EQ(shape->kv_heads * shape->head_dim, config->mla ? config->raw_q_dim() : config->kv_dim());
  uint64_t stored = 0;
  for (const TensorInfo& t : file.tensors())
    if (!t.name.starts_with("rope_f")) stored += t.view.elements();
  EXPECT_EQ(count_parameters(*shape).total(), stored);
}

// The config.json that transformers writes says the same as the GGUF file.
TEST_P(EveryShape, ItsConfigSaysTheSame) {
  const auto from_file = shape_from_gguf(open_tiny(GetParam()));
  const auto from_config = resolve_shape(tiny_path(GetParam() + ".json"));
  ASSERT_TRUE(from_file.ok()) << from_file.message();
  ASSERT_TRUE(from_config.ok()) << from_config.message();
  EXPECT_EQ(count_parameters(*from_config).total(), count_parameters(*from_file).total());
  EXPECT_EQ(from_config->windows, from_file->windows);
  EXPECT_EQ(from_config->kv_heads, from_file->kv_heads);
  EXPECT_EQ(from_config->head_dim, from_file->head_dim);
  EXPECT_EQ(from_config->tied_embeddings, from_file->tied_embeddings);
}

// Bytes, a merge of merges and a control token, whatever the expression that cuts text into words.
TEST_P(EveryShape, ItsTokenizerReadsText) {
  const GgufFile file = open_tiny(GetParam());
  const auto tokenizer = Tokenizer::load(file.metadata());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const auto ids = (*tokenizer)->encode("a the<|end|>", {.add_special = false, .parse_special = true});
  EXPECT_EQ(ids, (std::vector<TokenId>{TokenId{'a'}, TokenId{259}, TokenId{265}}));
}

// The models whose kind of tokenizer transformers defines.
class EveryDefinedTokenizer : public testing::TestWithParam<std::string> {};

TEST_P(EveryDefinedTokenizer, GivesTheIdsOfTransformers) {
  std::ifstream in(tiny_path(GetParam() + ".ids"));
  const auto tokenizer = Tokenizer::load(open_tiny(GetParam()).metadata());
  ASSERT_TRUE(tokenizer.ok()) << tokenizer.message();
  const std::vector<std::string> texts = read_texts("torture.txt");
  size_t count = 0;
  for (std::string line; std::getline(in, line); ++count) {
    std::istringstream words(line);
    size_t index = 0;
    words >> index;
    const std::vector<TokenId> expected(std::istream_iterator<TokenId>(words), {});
    EXPECT_EQ((*tokenizer)->encode(texts.at(index), {.add_special = false}), expected) << texts[index];
  }
  EXPECT_GT(count, 50u);
}

INSTANTIATE_TEST_SUITE_P(Tiny, EveryDefinedTokenizer,
                         testing::Values("qwen2", "qwen3", "gemma", "gemma2", "gemma3", "command-r",
                                         "command-r-plus", "cohere2"),
                         tiny_test_name);

INSTANTIATE_TEST_SUITE_P(Tiny, EveryShape, testing::ValuesIn(tiny_names()), tiny_test_name);

}  // namespace
}  // namespace kvasir
