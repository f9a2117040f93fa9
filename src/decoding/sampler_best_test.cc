// A token chosen from the best logits of a row is the one chosen from all of them.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/aligned_buffer.h"
#include "decoding/sampler.h"

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr uint32_t kVocab = 1000;

// Coarse enough for ties at every rank.
std::vector<float> coarse_row(uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<float> row(kVocab);
  for (float& x : row) x = static_cast<float>(rng() % 400) * 0.02f;
  return row;
}

struct Both {
  explicit Both(const SamplingParams& params)
      : sampler(params, 0, kVocab, std::vector<TokenId>{3, 7}, kernel_table(best_isa())) {}

  Result<SampledToken> from_all(const std::vector<float>& row, uint32_t position, uint32_t output_count) {
    const auto copy = work.as<float>().first(row.size());
    std::copy(row.begin(), row.end(), copy.begin());
    return sampler.sample(copy, position, output_count, scratch);
  }
  Result<SampledToken> from_best(const std::vector<float>& row, uint32_t position, uint32_t output_count) {
    best.start(sampler.logits_wanted(output_count));
    best.add(row.data(), kVocab, 0, kernel_table(best_isa()));
    return sampler.sample(best, position, output_count, scratch);
  }

  Sampler sampler;
  SamplerScratch scratch;
  BestLogits best;
  AlignedBuffer work{kVocab * sizeof(float)};
};

SamplingParams base_params() {
  SamplingParams p;
  p.temperature = 0.0f;
  p.seed = 11;
  return p;
}

void expect_equal(const SamplingParams& params, uint32_t wanted, const char* what) {
  Both both(params);
  for (const uint32_t count : {0u, 4u}) {
    if (count == 0) {
      EXPECT_EQ(both.sampler.logits_wanted(count), wanted) << what;
    }
    for (uint32_t seed = 0; seed < 200; ++seed) {
      std::vector<float> row = coarse_row(seed);
      if (seed % 3 == 0) row[3] = row[7] = 20.0f;  // end tokens are the best
      const auto all = both.from_all(row, seed, count);
      const auto few = both.from_best(row, seed, count);
      ASSERT_TRUE(all.ok() && few.ok());
      ASSERT_EQ(all->token, few->token) << what << ", row " << seed << " after " << count;
    }
  }
}

TEST(SamplerBest, ChoosesTheSameToken) {
  SamplingParams p = base_params();
  expect_equal(p, 1, "argmax");
  p.ignore_eos = true;
  expect_equal(p, 3, "argmax without end tokens");
  p = base_params();
  p.min_tokens = 2;
  p.stop_token_ids = {5};
  expect_equal(p, 4, "argmax with late tokens");
  p = base_params();
  p.temperature = 0.8f;
  p.top_k = 5;
  expect_equal(p, 5, "top_k");
  p.min_tokens = 2;
  p.ignore_eos = true;
  expect_equal(p, 9, "top_k with masks");
  p.top_p = 0.7f;
  p.min_p = 0.02f;
  expect_equal(p, 9, "top_k, top_p and min_p");
  p.temperature = 1e8f;  // every scaled logit is nearly the same
  expect_equal(p, 9, "hot");
}

// A guess is the token that would be chosen from the same row, whatever is to be said about that token.
TEST(SamplerBest, GuessesAreWhatWouldBeChosen) {
  for (const float temperature : {0.0f, 0.9f}) {
    for (const int32_t top_k : {0, 5}) {
      for (const float penalty : {1.0f, 1.4f}) {
        SamplingParams p = base_params();
        p.temperature = temperature;
        p.top_k = top_k;
        p.repetition_penalty = penalty;
        p.ignore_eos = true;
        p.logprobs = 3;
        Both both(p);
        for (TokenId t = 0; t < 500; ++t) both.sampler.observe_prompt({&t, 1});
        for (uint32_t seed = 0; seed < 50; ++seed) {
          std::vector<float> row = coarse_row(seed);
          const TokenId chosen = both.from_all(row, seed, 2)->token;
          const uint32_t needed = both.sampler.logits_to_choose(2);
          const auto copy = both.work.as<float>().first(row.size());
          std::copy(row.begin(), row.end(), copy.begin());
          EXPECT_EQ(both.sampler.choose(copy, seed, 2, both.scratch).value(), chosen);
          if (needed == kAllLogits) continue;
          both.best.start(needed + 3);
          both.best.add(row.data(), kVocab, 0, kernel_table(best_isa()));
          EXPECT_EQ(both.sampler.choose(both.best, seed, 2, both.scratch).value(), chosen);
        }
        EXPECT_EQ(both.sampler.logits_wanted(2), kAllLogits);
        const uint32_t needed = penalty != 1.0f || (temperature > 0 && top_k == 0) ? kAllLogits
                                : temperature > 0                                  ? 7
                                                                                   : 3;
        EXPECT_EQ(both.sampler.logits_to_choose(2), needed);
      }
    }
  }
}

TEST(SamplerBest, AllLogitsAreWantedWhereTheBestDoNotTell) {
  const auto wanted = [](auto change) {
    SamplingParams p = base_params();
    change(p);
    return Both(p).sampler.logits_wanted(0);
  };
  EXPECT_EQ(wanted([](SamplingParams& p) { p.logprobs = 0; }), kAllLogits);
  EXPECT_EQ(wanted([](SamplingParams& p) { p.logit_bias = {{1, 1.0f}}; }), kAllLogits);
  EXPECT_EQ(wanted([](SamplingParams& p) { p.allowed_tokens = {{1, 2}}; }), kAllLogits);
  EXPECT_EQ(wanted([](SamplingParams& p) { p.repetition_penalty = 1.1f; }), kAllLogits);
  EXPECT_EQ(wanted([](SamplingParams& p) { p.presence_penalty = 0.1f; }), kAllLogits);
  EXPECT_EQ(wanted([](SamplingParams& p) { p.temperature = 1.0f; }), kAllLogits);
  const auto hot = [](int32_t top_k) {
    return [top_k](SamplingParams& p) {
      p.temperature = 1.0f;
      p.top_k = top_k;
    };
  };
  EXPECT_EQ(wanted(hot(64)), 64u);
  EXPECT_EQ(wanted(hot(65)), kAllLogits);
  EXPECT_EQ(wanted(hot(static_cast<int32_t>(kVocab))), kAllLogits);  // no top_k at all
}

TEST(SamplerBest, ErrorsAreTheSame) {
  SamplingParams p = base_params();
  const auto expect_same_error = [&](const std::vector<float>& row) {
    Both both(p);
    const auto all = both.from_all(row, 5, 0);
    const auto few = both.from_best(row, 5, 0);
    ASSERT_FALSE(all.ok());
    ASSERT_FALSE(few.ok());
    EXPECT_EQ(all.status().message(), few.status().message());
    EXPECT_EQ(all.status().code(), few.status().code());
  };
  std::vector<float> row = coarse_row(1);
  row[500] = std::nanf("");
  row[900] = kInfinity;
  expect_same_error(row);
  std::fill(row.begin(), row.end(), -kInfinity);
  expect_same_error(row);
  p.ignore_eos = true;
  row[3] = row[7] = 1.0f;
  expect_same_error(row);
}

}  // namespace
}  // namespace kvasir
