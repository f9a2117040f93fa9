// Logits of which only the best are wanted: those of the whole row, whatever else the step holds and however
// many threads share it.
#include <algorithm>
#include <cstring>

#include "tests/model_fixture.h"

namespace kvasir {
namespace {

constexpr uint32_t kRows = 70;  // more than a sweep's worth

struct StepResult {
  std::vector<float> whole;
  std::vector<BestLogits> best;
};

// One sequence of fixed tokens in one step, whose rows all want logits.
StepResult run(LoadedModel& m, uint32_t rows, const std::vector<uint32_t>& wanted) {
  const LoadedModel::Tables table = m.make_tables(0, 4);
  std::vector<TokenId> tokens(rows);
  std::vector<int32_t> positions(rows);
  std::vector<uint32_t> logit_rows(rows);
  for (uint32_t r = 0; r < rows; ++r) {
    tokens[r] = static_cast<TokenId>((r * 7919 + 13) % m.vocab());
    positions[r] = static_cast<int32_t>(r);
    logit_rows[r] = r;
  }
  const ForwardBatch::Sequence sequence = {0, rows, table.pointers};
  const ForwardBatch batch = {tokens, positions, {&sequence, 1}, logit_rows, wanted};
  StepResult out;
  out.whole.resize(batch.whole_rows() * m.vocab());
  out.best.resize(rows);
  m.model().forward(batch, m.store(), out.whole, out.best);
  return out;
}

std::vector<Candidate> sorted(std::span<const Candidate> list) {
  std::vector<Candidate> out(list.begin(), list.end());
  std::sort(out.begin(), out.end(), ranks_before);
  return out;
}

void expect_best(const float* row, uint32_t vocab, const BestLogits& got, uint32_t wanted) {
  std::vector<Candidate> all;
  for (uint32_t t = 0; t < vocab; ++t) all.push_back({row[t], static_cast<TokenId>(t)});
  std::partial_sort(all.begin(), all.begin() + wanted, all.end(), ranks_before);
  ASSERT_EQ(got.count, wanted);
  const auto list = sorted(got.list());
  for (uint32_t i = 0; i < wanted; ++i) {
    ASSERT_EQ(list[i].id, all[i].id);
    ASSERT_EQ(std::memcmp(&list[i].x, &all[i].x, sizeof(float)), 0);
  }
}

class OutputHeadOf : public testing::TestWithParam<const char*> {};

TEST_P(OutputHeadOf, GivesTheBestOfTheWholeRow) {
  if (!std::filesystem::exists(model_path(GetParam())))
    GTEST_SKIP() << "models/" << GetParam() << " is absent: tools/fetch_models.py fetches it";
  for (const uint32_t threads : {1u, 2u, 3u}) {
    LoadedModel m(GetParam(), best_isa(), threads);
    for (const uint32_t rows : {1u, 9u, kRows}) {
      const std::vector<float> whole = run(m, rows, {}).whole;
      for (const bool mixed : {false, true}) {
        std::vector<uint32_t> wanted(rows);
        for (uint32_t r = 0; r < rows; ++r)
          wanted[r] = mixed && r % 3 == 1 ? kAllLogits : 1 + r * 5 % BestLogits::kMost;
        const StepResult got = run(m, rows, wanted);
        const float* next_whole = got.whole.data();
        for (uint32_t r = 0; r < rows; ++r) {
          const float* row = whole.data() + size_t{r} * m.vocab();
          if (wanted[r] != kAllLogits) {
            expect_best(row, m.vocab(), got.best[r], wanted[r]);
            continue;
          }
          EXPECT_EQ(std::memcmp(next_whole, row, m.vocab() * sizeof(float)), 0) << r;
          next_whole += m.vocab();
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Real, OutputHeadOf,
                         testing::Values("smollm2-135m-instruct-q4_1.gguf", "gemma-3-270m-q4_k_m.gguf"),
                         [](const auto& each) { return model_test_name(each.param); });

}  // namespace
}  // namespace kvasir
