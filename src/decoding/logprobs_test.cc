// Log-probabilities of a row and the places of its tokens.
#include "decoding/logprobs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "base/aligned_buffer.h"

namespace kvasir {
namespace {

TEST(Logprobs, RankIsThePlaceAmongTheBest) {
  constexpr uint32_t kVocab = 64;
  AlignedBuffer memory(kVocab * sizeof(float));
  const auto row = memory.as<float>().first(kVocab);
  for (uint32_t i = 0; i < kVocab; ++i) row[i] = static_cast<float>(i * 7 % 10);  // with ties
  SamplerScratch scratch;
  const SampledToken all = score_token(row, 0, kVocab, kernel_table(best_isa()), scratch);
  ASSERT_EQ(all.top.size(), kVocab);
  for (uint32_t i = 0; i < kVocab; ++i) {
    SampledToken scored;  // with no best ones beside it
    scored.token = all.top[i].token;
    EXPECT_EQ(rank_of(row, scored), i + 1);
    scored.top = all.top;
    EXPECT_EQ(rank_of(row, scored), i + 1);
  }
  row[5] = -HUGE_VALF;
  SampledToken last;
  last.token = 5;
  EXPECT_EQ(rank_of(row, last), kVocab);
}

}  // namespace
}  // namespace kvasir
