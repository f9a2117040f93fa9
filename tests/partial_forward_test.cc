// Passes of a part of the model, which give guesses: what they leave in the pool is not seen by the passes
// that give answers.

#include <algorithm>
#include <cstring>
#include <memory>

#include "tests/model_fixture.h"

namespace kvasir {
namespace {

constexpr uint32_t kPrompt = 40;
constexpr uint32_t kGuesses = 5;

struct Pass {
  std::vector<uint32_t> layers = {};
  uint32_t head_tokens = 0;
  uint32_t best = 0;  // 0: all logits
};

struct Logits {
  std::vector<float> whole;
  std::vector<BestLogits> best;
};

TokenId token_at(uint32_t position, uint32_t text, uint32_t vocab) {
  return static_cast<TokenId>((position * 7919 + 13 + text * 104729) % vocab);
}

// Rows [first, first + rows) of a sequence, which all want logits.
Logits run(LoadedModel& m, const LoadedModel::Tables& tables, uint32_t first, uint32_t rows, uint32_t text,
           const Pass& pass = {}) {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<uint32_t> logit_rows;
  for (uint32_t p = first; p < first + rows; ++p) {
    logit_rows.push_back(p - first);
    tokens.push_back(token_at(p, p < kPrompt ? 0 : text, m.vocab()));
    positions.push_back(static_cast<int32_t>(p));
  }
  const ForwardBatch::Sequence sequence = {0, rows, tables.pointers};
  const std::vector<uint32_t> wanted(pass.best == 0 ? 0 : rows, pass.best);
  const ForwardBatch batch = {.tokens = tokens,
                              .positions = positions,
                              .sequences = {&sequence, 1},
                              .logit_rows = logit_rows,
                              .logits_wanted = wanted,
                              .layers = pass.layers,
                              .head_tokens = pass.head_tokens};
  Logits out;
  out.whole.assign(batch.whole_rows() * m.vocab(), 12345.0f);
  out.best.resize(rows);
  m.model().forward(batch, m.store(), out.whole, out.best);
  return out;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

struct Param {
  const char* file;
  KvType kv_type;
};

class PartOfTheModel : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(model_path(GetParam().file)))
      GTEST_SKIP() << "models/" << GetParam().file << " is absent: tools/fetch_models.py fetches it";
    model_ = std::make_unique<LoadedModel>(GetParam().file, best_isa(), 2, 32, GetParam().kv_type);
    for (uint32_t l = 0; l < model_->model().config().layers; ++l) all_.push_back(l);
  }
  std::unique_ptr<LoadedModel> model_;
  std::vector<uint32_t> all_;
};

TEST_P(PartOfTheModel, AllLayersAreTheModel) {
  const LoadedModel::Tables tables = model_->make_tables(0, 4);
  const Logits whole = run(*model_, tables, 0, kPrompt, 0);
  const Logits listed = run(*model_, model_->make_tables(4, 4), 0, kPrompt, 0, {.layers = all_});
  EXPECT_TRUE(same_bits(whole.whole, listed.whole));
}

// As a draft by some layers goes: one guess after the other, right and wrong ones; then the verification of
// all of them at once.
TEST_P(PartOfTheModel, NothingOfItsKvIsSeenAfterwards) {
  const auto layers = static_cast<uint32_t>(all_.size());
  std::vector<std::vector<uint32_t>> parts = {{all_.begin(), all_.begin() + layers / 3}, {layers - 1}, {}};
  for (uint32_t l = 0; l < layers; l += 2) parts[2].push_back(l);
  const LoadedModel::Tables plain = model_->make_tables(0, 4);
  run(*model_, plain, 0, kPrompt, 0);
  const Logits expected = run(*model_, plain, kPrompt, kGuesses + 1, 1);
  for (size_t i = 0; i < parts.size(); ++i) {
    for (const uint32_t text : {1u, 2u}) {  // guesses that are what is verified, or something else
      const LoadedModel::Tables tables = model_->make_tables(4 + static_cast<uint32_t>(i) * 4, 4);
      run(*model_, tables, 0, kPrompt, 0);
      for (uint32_t p = kPrompt; p < kPrompt + kGuesses; ++p)
        run(*model_, tables, p, 1, text, {.layers = parts[i]});
      EXPECT_TRUE(same_bits(expected.whole, run(*model_, tables, kPrompt, kGuesses + 1, 1).whole))
          << "part " << i << ", guesses " << text;
    }
  }
}

TEST_P(PartOfTheModel, ATrimmedHeadGivesTheSameLogitsForItsTokens) {
  const LoadedModel::Tables tables = model_->make_tables(0, 4);
  const uint32_t vocab = model_->vocab();
  const Logits whole = run(*model_, tables, 0, 7, 0);
  for (const uint32_t head : {1u, 16u, 1000u, 20'007u, vocab}) {
    const Logits some = run(*model_, tables, 0, 7, 0, {.head_tokens = head});
    const Logits best = run(*model_, tables, 0, 7, 0, {.head_tokens = head, .best = 2});
    for (uint32_t row = 0; row < 7; ++row) {
      const float* a = whole.whole.data() + size_t{row} * vocab;
      const float* b = some.whole.data() + size_t{row} * vocab;
      EXPECT_EQ(std::memcmp(a, b, head * sizeof(float)), 0) << head;
      EXPECT_TRUE(std::all_of(b + head, b + vocab, [](float x) { return x == 12345.0f; })) << head;
      const auto argmax = static_cast<TokenId>(std::max_element(a, a + head) - a);
      const std::span<const Candidate> found = best.best[row].list();
      ASSERT_EQ(found.size(), std::min(2u, head));
      EXPECT_EQ(std::min_element(found.begin(), found.end(), ranks_before)->id, argmax);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Real, PartOfTheModel,
                         testing::Values(Param{"smollm2-135m-instruct-q4_1.gguf", KvType::kF16},
                                         Param{"smollm2-135m-instruct-q4_1.gguf", KvType::kInt8},
                                         Param{"gemma-3-270m-q4_k_m.gguf", KvType::kF16}),
                         [](const auto& param) {
                           return model_test_name(param.param.file) + "_" +
                                  std::string(kv_type_name(param.param.kv_type));
                         });

}  // namespace
}  // namespace kvasir
