// An EAGLE-3 head as a GGUF file, as tools/head_to_gguf.py writes it for llama.cpp: the same weights to the
// bit as from the safetensors file, and the same guesses.

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>

#include "base/build_kind.h"
#include "engine/drafters.h"
#include "engine/eagle_file.h"
#include "engine/llm.h"
#include "tests/model_fixture.h"
#include "tests/speculation/compared_answers.h"

namespace kvasir {
namespace {

constexpr const char* kModel = "smollm2-135m-instruct-q4_1.gguf";

bool same_matrix(const OwnMatrix& a, const OwnMatrix& b) {
  const PackedMatrix &x = a.packed(), &y = b.packed();
  return x.type == y.type && x.n == y.n && x.k == y.k &&
         std::memcmp(x.data, y.data, x.panels() * x.panel_bytes) == 0;
}

class GgufHead : public testing::Test {
 protected:
  void SetUp() override {
    if (kSlowBuild) GTEST_SKIP() << "sanitised builds read heads over a small model";
    const std::string source = KVASIR_SOURCE_DIR, python = source + "/.venv/bin/python";
    if (!std::filesystem::exists(model_path(kModel)))
      GTEST_SKIP() << model_path(kModel) << " is absent: tools/fetch_models.py fetches it";
    if (!std::filesystem::exists(python))
      GTEST_SKIP() << python << " is absent: tools/setup.sh --python makes it";
    const std::string stem =
        testing::TempDir() + "/" + testing::UnitTest::GetInstance()->current_test_info()->name();
    safetensors_ = stem + ".safetensors";
    gguf_ = stem + ".gguf";
    // NOLINTBEGIN(concurrency-mt-unsafe): nothing else runs
    const std::string make = python + " " + source + "/tests/speculation/make_eagle3_head.py " +
                             model_path(kModel) + " " + safetensors_;
    ASSERT_EQ(std::system(make.c_str()), 0) << make;
    const std::string convert = python + " " + source + "/tools/head_to_gguf.py " + safetensors_ + " " +
                                model_path(kModel) + " " + gguf_;
    ASSERT_EQ(std::system(convert.c_str()), 0) << convert;
    // NOLINTEND(concurrency-mt-unsafe)
  }
  void TearDown() override {
    for (const std::string& file : {safetensors_, gguf_}) std::filesystem::remove(file);
  }

  std::string safetensors_, gguf_;
};

TEST_F(GgufHead, HasTheSameWeights) {
  LoadedModel model(kModel, best_isa(), 2);
  const auto want = load_eagle(safetensors_, model.model(), 0);
  const auto got = load_eagle(gguf_, model.model(), 0);
  ASSERT_TRUE(want.ok()) << want.message();
  ASSERT_TRUE(got.ok()) << got.message();
  EXPECT_TRUE(got->fuses_layers);
  EXPECT_EQ(got->points, want->points);
  EXPECT_EQ(got->norm_before_residual, want->norm_before_residual);
  EXPECT_EQ(got->config.heads, want->config.heads);
  EXPECT_EQ(got->config.kv_heads, want->config.kv_heads);
  EXPECT_EQ(got->config.head_dim, want->config.head_dim);
  EXPECT_EQ(got->config.rope_base, want->config.rope_base);
  EXPECT_EQ(got->config.norm_eps, want->config.norm_eps);
  for (const auto member : {&EagleWeights::fc, &EagleWeights::q, &EagleWeights::k, &EagleWeights::v,
                            &EagleWeights::o, &EagleWeights::gate, &EagleWeights::up, &EagleWeights::down})
    EXPECT_TRUE(same_matrix((*got).*member, (*want).*member));
  for (const auto member : {&EagleWeights::embedding_norm, &EagleWeights::hidden_norm,
                            &EagleWeights::output_norm, &EagleWeights::ffn_norm})
    EXPECT_EQ((*got).*member, (*want).*member);
  EXPECT_TRUE(std::ranges::equal(got->output->ids(), want->output->ids()));
  const PackedMatrix &a = got->output->rows(), &b = want->output->rows();
  ASSERT_EQ(a.panels() * a.panel_bytes, b.panels() * b.panel_bytes);
  EXPECT_EQ(std::memcmp(a.data, b.data, a.panels() * a.panel_bytes), 0);
}

TEST_F(GgufHead, MakesTheSameGuesses) {
  Llm::Options options;
  options.threads = 2;
  options.engine.max_num_seqs = 2;
  options.engine.max_model_len = 256;
  options.engine.kv_bytes = uint64_t{64} << 20;
  auto llm = Llm::open(model_path(kModel), options);
  ASSERT_TRUE(llm.ok()) << llm.message();
  Request r;
  r.prompt = (*llm)->tokenizer().encode("The capital of France is Paris. The capital of Italy is", {});
  r.sampling.temperature = 0;
  r.sampling.max_tokens = 40;
  DrafterStats stats[2];
  std::vector<CollectedAnswer> answers[2];
  for (uint32_t i = 0; i < 2; ++i) {
    EngineConfig config = options.engine;
    config.speculation.drafters = parse_drafters("eagle=" + (i == 0 ? safetensors_ : gguf_)).value();
    config.speculation.most = 3;
    config.speculation.always = true;
    auto engine = (*llm)->start_engine(config);
    ASSERT_TRUE(engine.ok()) << engine.message();
    answers[i] = answers_of(**engine, {r});
    stats[i] = stats_when_idle(**engine).speculation.drafters[0];
  }
  EXPECT_TRUE(same(answers[0][0], answers[1][0]));
  EXPECT_GT(stats[0].drafts, 0u);
  EXPECT_EQ(stats[1].drafts, stats[0].drafts);
  EXPECT_EQ(stats[1].drafted, stats[0].drafted);
  EXPECT_EQ(stats[1].accepted_at, stats[0].accepted_at);
}

}  // namespace
}  // namespace kvasir
