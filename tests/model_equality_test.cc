// Same tokens, same bits: logits may not depend on chunks, batch mates, block tables, threads or instruction
// set (docs/numerics.md). Run on the real small models, and on small random ones where no real one is at
// hand.

#include <algorithm>
#include <memory>

#include "tests/model_runs.h"
#include "tests/tiny_fixture.h"

namespace kvasir {
namespace {

constexpr uint32_t kTokens = 83;  // not a multiple of anything the kernels use

// Computes rows [first, first + rows[s]) of each sequence s in one step and returns the logits of all rows.
std::vector<float> step(LoadedModel& m, const std::vector<LoadedModel::Tables>& tables,
                        const std::vector<std::vector<TokenId>>& texts, uint32_t first,
                        const std::vector<uint32_t>& rows) {
  std::vector<TokenId> tokens;
  std::vector<int32_t> positions;
  std::vector<ForwardBatch::Sequence> sequences;
  std::vector<uint32_t> logit_rows;
  for (size_t s = 0; s < rows.size(); ++s) {
    sequences.push_back({static_cast<uint32_t>(tokens.size()), rows[s], tables[s].pointers});
    for (uint32_t r = 0; r < rows[s]; ++r) {
      logit_rows.push_back(static_cast<uint32_t>(tokens.size()));
      tokens.push_back(texts[s][first + r]);
      positions.push_back(static_cast<int32_t>(first + r));
    }
  }
  std::vector<float> logits(tokens.size() * m.vocab());
  m.model().forward({tokens, positions, sequences, logit_rows}, m.store(), logits);
  return logits;
}

// Logits of some rows of sequences that begin with the same `prefix` tokens, a multiple of the block size:
// each with K and V of its own, or all on the first one's blocks.
std::vector<float> run_family(LoadedModel& m, uint32_t prefix, const std::vector<uint32_t>& rows,
                              bool shared) {
  const uint32_t block_size = m.store().layout().block_size();
  const uint32_t entries = prefix / block_size + 1;
  std::vector<LoadedModel::Tables> tables;
  std::vector<std::vector<TokenId>> texts;
  const auto common = random_tokens(prefix, m.vocab(), 21);
  for (uint32_t s = 0; s < rows.size(); ++s) {
    tables.push_back(m.make_tables(s * entries, entries));
    texts.push_back(common);
    const auto own = random_tokens(rows[s], m.vocab(), 500 + s);
    texts[s].insert(texts[s].end(), own.begin(), own.end());
    if (s != 0 && shared) m.share_prefix(tables[s], tables[0], prefix / block_size);
    if (s != 0 && shared) continue;
    for (uint32_t first = 0; first < prefix; first += 256)
      step(m, {tables[s]}, {texts[s]}, first, {std::min(256u, prefix - first)});
  }
  return step(m, tables, texts, prefix, rows);
}

struct Param {
  const char* file;
  KvType kv_type = KvType::kF16;
};

class EveryModel : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (!std::filesystem::exists(model_path(GetParam().file)))
      GTEST_SKIP() << "models/" << GetParam().file << " is absent: tools/fetch_models.py fetches it";
  }
  static std::unique_ptr<LoadedModel> load(Isa isa, uint32_t threads, uint32_t block_size = 32) {
    return std::make_unique<LoadedModel>(GetParam().file, isa, threads, block_size, GetParam().kv_type);
  }
};

TEST_P(EveryModel, LogitsDoNotDependOnChunksOrCompany) {
  const auto model = load(best_isa(), 1);
  LoadedModel& m = *model;
  const auto tokens = random_tokens(kTokens, m.vocab(), 7);
  const auto whole = run(m, tokens, kTokens, 0);
  for (uint32_t chunk : {1u, 2u, 3u, 5u, 7u, 9u, 64u})
    EXPECT_TRUE(same_bits(whole, run(m, tokens, chunk, 0))) << "chunks of " << chunk;
  EXPECT_TRUE(same_bits(whole, run(m, tokens, 40, 7))) << "beside seven others";
  EXPECT_TRUE(same_bits(whole, run(m, tokens, 1, 15))) << "token by token beside fifteen others";
}

TEST_P(EveryModel, LogitsDoNotDependOnThreadsIsaOrBlockSize) {
  std::vector<float> first;
  const auto tokens_for = [](LoadedModel& m) { return random_tokens(20, m.vocab(), 11); };
  {
    const auto m = load(best_isa(), 1);
    first = run(*m, tokens_for(*m), 20, 0);
  }
  const auto expect_same = [&](Isa isa, uint32_t threads, uint32_t block_size) {
    const auto m = load(isa, threads, block_size);
    EXPECT_TRUE(same_bits(first, run(*m, tokens_for(*m), 20, 0)))
        << isa_name(isa) << ", " << threads << " threads, blocks of " << block_size;
  };
  expect_same(best_isa(), 2, 32);
  expect_same(best_isa(), 3, 16);
  expect_same(best_isa(), 2, 64);
  if (isa_supported(Isa::kAvx2)) expect_same(Isa::kAvx2, 2, 32);
}

TEST_P(EveryModel, LogitsDoNotDependOnWhoSharesThePrefix) {
  const std::vector<uint32_t> rows = {1, 1, 3, 1};
  std::vector<float> own;
  for (const uint32_t threads : {1u, 2u, 3u}) {
    const auto m = load(best_isa(), threads);
    if (threads == 1) own = run_family(*m, 192, rows, false);
    EXPECT_TRUE(same_bits(own, run_family(*m, 192, rows, true))) << threads << " threads";
  }
}

// Contexts of several splits: cut among threads, and read once for two sequences.
TEST(LongContext, LogitsDoNotDependOnThreadsOrSharing) {
  const char* file = "smollm2-135m-instruct-q4_1.gguf";
  if (!std::filesystem::exists(model_path(file))) GTEST_SKIP() << "models/" << file << " is absent";
  const std::vector<uint32_t> rows = {1, 9};
  std::vector<float> own;
  for (const uint32_t threads : {1u, 2u, 3u}) {
    LoadedModel m(file, best_isa(), threads, 64);
    if (threads == 1) own = run_family(m, 2176, rows, false);
    EXPECT_TRUE(same_bits(own, run_family(m, 2176, rows, threads != 2))) << threads << " threads";
  }
}

// The same of latent rows (multi-head latent attention): chunks, company, a shared prefix, and contexts of
// several splits.
class LatentRows : public testing::TestWithParam<KvType> {
 protected:
  static std::unique_ptr<LoadedModel> load(uint32_t threads, Isa isa = best_isa()) {
    return std::make_unique<LoadedModel>(open_tiny("deepseek-v3"), isa, threads, 64, GetParam());
  }
};

TEST_P(LatentRows, LogitsDoNotDependOnWhoSharesThePrefix) {
  const std::vector<uint32_t> rows = {1, 1, 3, 1, 20};
  std::vector<float> own;
  for (const uint32_t threads : {1u, 2u, 3u}) {
    const auto m = load(threads);
    if (threads == 1) own = run_family(*m, 192, rows, false);
    EXPECT_TRUE(same_bits(own, run_family(*m, 192, rows, true))) << threads << " threads";
  }
}

TEST_P(LatentRows, LogitsOfLongContextsDoNotDependOnThreadsOrSharing) {
  const std::vector<uint32_t> rows = {1, 9};
  std::vector<float> own;
  for (const uint32_t threads : {1u, 2u, 3u}) {
    const auto m = load(threads);
    if (threads == 1) own = run_family(*m, 2176, rows, false);
    EXPECT_TRUE(same_bits(own, run_family(*m, 2176, rows, threads != 2))) << threads << " threads";
  }
}

TEST_P(LatentRows, TheScalarReferenceDefinesTheirBits) {
  const auto fast = load(2), reference = load(2, Isa::kScalar);
  const auto tokens = random_tokens(100, fast->vocab(), 3);
  EXPECT_TRUE(same_bits(run(*fast, tokens, 33, 2), run(*reference, tokens, 100, 0)));
}

INSTANTIATE_TEST_SUITE_P(Tiny, LatentRows, testing::Values(KvType::kF16, KvType::kInt8),
                         [](const auto& param) { return std::string(kv_type_name(param.param)); });

// The scalar reference is slow: the smallest model and a few tokens.
TEST(ScalarReference, DefinesTheBitsOfAWholeModel) {
  const char* file = "smollm2-135m-instruct-q4_1.gguf";
  if (!std::filesystem::exists(model_path(file))) GTEST_SKIP() << "models/" << file << " is absent";
  for (const KvType type : {KvType::kF16, KvType::kInt8}) {
    LoadedModel fast(file, best_isa(), 2, 32, type);
    LoadedModel reference(file, Isa::kScalar, 2, 32, type);
    const auto tokens = random_tokens(6, fast.vocab(), 3);
    EXPECT_TRUE(same_bits(run(fast, tokens, 6, 0), run(reference, tokens, 6, 0))) << kv_type_name(type);
  }
}

std::string test_name(const testing::TestParamInfo<Param>& info) {
  return model_test_name(info.param.file) + "_" + std::string(kv_type_name(info.param.kv_type));
}

INSTANTIATE_TEST_SUITE_P(Real, EveryModel,
                         testing::Values(Param{"smollm2-135m-instruct-q4_1.gguf"},
                                         Param{"gemma-3-270m-q4_k_m.gguf"},
                                         Param{"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"},
                                         Param{"qwen2.5-coder-1.5b-instruct-q4_k_m.gguf"},
                                         Param{"smollm2-135m-instruct-q4_1.gguf", KvType::kInt8},
                                         Param{"gemma-3-270m-q4_k_m.gguf", KvType::kInt8},
                                         Param{"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", KvType::kInt8}),
                         test_name);

}  // namespace
}  // namespace kvasir
