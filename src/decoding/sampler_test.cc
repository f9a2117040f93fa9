#include "decoding/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>

#include "base/aligned_buffer.h"

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

SamplingParams greedy() {
  SamplingParams p;
  p.temperature = 0.0f;
  return p;
}

// A sampler over one row, whose history and position the test moves.
struct Bench {
  explicit Bench(SamplingParams params, std::vector<float> logits, uint32_t choice = 0,
                 std::vector<TokenId> end_tokens = {})
      : row(std::move(logits)),
        sampler(std::move(params), choice, static_cast<uint32_t>(row.size()), end_tokens,
                kernel_table(best_isa())) {}

  Result<SampledToken> sample(uint32_t position = 0, uint32_t output_count = 0) {
    const auto copy = work.as<float>().first(row.size());
    std::copy(row.begin(), row.end(), copy.begin());
    return sampler.sample(copy, position, output_count, scratch);
  }
  TokenId token(uint32_t position = 0, uint32_t output_count = 0) {
    auto r = sample(position, output_count);
    EXPECT_TRUE(r.ok()) << r.status().message();
    return r.ok() ? r->token : kNoToken;
  }
  // The tokens that come up in many draws.
  std::set<TokenId> support(int draws = 1000) {
    std::set<TokenId> seen;
    for (int i = 0; i < draws; ++i) seen.insert(token(static_cast<uint32_t>(i)));
    return seen;
  }

  std::vector<float> row;
  AlignedBuffer work{row.size() * sizeof(float)};
  Sampler sampler;
  SamplerScratch scratch;
};

using Set = std::set<TokenId>;

std::vector<float> log_of(std::vector<double> p) {
  std::vector<float> out;
  for (double x : p)
    out.push_back(static_cast<float>(std::log(x)) + 3.0f);  // any constant: logits are not log-probabilities
  return out;
}

std::vector<float> noisy_row(size_t n, float spread = 2.0f, uint32_t seed = 1) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> dist(0.0f, spread);
  std::vector<float> row(n);
  for (float& x : row) x = dist(rng);
  return row;
}

TEST(Sampler, TemperatureZeroIsArgmaxWithTiesToTheLowestId) {
  EXPECT_EQ(Bench(greedy(), {1.0f, 5.0f, 2.0f, 5.0f}).token(), 1);
  auto p = greedy();
  p.temperature = 1e-7f;
  p.top_p = 0.5f;
  EXPECT_EQ(Bench(p, {1.0f, 5.0f, 2.0f, 5.0f}).token(), 1);
}

TEST(Sampler, LowTemperaturesSharpenAndStayFinite) {
  SamplingParams p;
  p.temperature = 1e-5f;
  EXPECT_EQ(Bench(p, {30.0f, -1e38f, 29.9f, -kInfinity}).support(), Set{0});
  p.temperature = 0.5f;
  Bench half(p, log_of({0.6, 0.4}));  // probabilities become 0.36 : 0.16
  int first = 0;
  for (uint32_t i = 0; i < 20000; ++i) first += half.token(i) == 0;
  EXPECT_NEAR(first / 20000.0, 0.36 / 0.52, 0.015);
}

TEST(Sampler, TopKKeepsExactlyKWithTiesToTheLowerId) {
  SamplingParams p;
  p.top_k = 3;
  EXPECT_EQ(Bench(p, log_of({0.1, 0.2, 0.2, 0.2, 0.2, 0.1})).support(), (Set{1, 2, 3}));
  p.top_k = 1;
  EXPECT_EQ(Bench(p, log_of({0.1, 0.3, 0.3, 0.3})).support(), Set{1});
  p.top_k = 100;  // beyond the vocabulary: off
  EXPECT_EQ(Bench(p, log_of({0.25, 0.25, 0.25, 0.25})).support(), (Set{0, 1, 2, 3}));
  p.top_k = -1;
  EXPECT_EQ(Bench(p, log_of({0.5, 0.5})).support(), (Set{0, 1}));
}

TEST(Sampler, TopPKeepsTheShortestSufficientPrefix) {
  SamplingParams p;
  p.top_p = 0.5f;
  EXPECT_EQ(Bench(p, log_of({0.2, 0.5, 0.3})).support(), Set{1});  // exactly reached
  p.top_p = 0.51f;
  EXPECT_EQ(Bench(p, log_of({0.2, 0.5, 0.3})).support(), (Set{1, 2}));
  p.top_p = 0.0f;
  EXPECT_EQ(Bench(p, log_of({0.2, 0.5, 0.3})).support(), Set{1});
  p.top_p = 0.6f;
  EXPECT_EQ(Bench(p, log_of({0.25, 0.25, 0.25, 0.25})).support(), (Set{0, 1, 2}));
}

TEST(Sampler, TopPOfAFlatLargeVocabularyKeepsItsShare) {
  SamplingParams p;
  p.top_p = 0.5f;
  Bench flat(p, std::vector<float>(20000, 1.0f));
  for (uint32_t i = 0; i < 100; ++i) EXPECT_LT(flat.token(i), 10000);
}

TEST(Sampler, TopPWeighsWhatTopKLeft) {
  SamplingParams p;
  p.top_k = 2;
  p.top_p = 0.6f;  // 0.4 of 0.7 is 0.571: both stay; of the whole it would be three tokens
  EXPECT_EQ(Bench(p, log_of({0.4, 0.3, 0.2, 0.1})).support(), (Set{0, 1}));
  p.top_p = 0.57f;
  EXPECT_EQ(Bench(p, log_of({0.4, 0.3, 0.2, 0.1})).support(), Set{0});
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  SamplingParams p;
  p.min_p = 0.5f;
  EXPECT_EQ(Bench(p, log_of({0.4, 0.22, 0.2 - 0.01, 0.19})).support(), (Set{0, 1}));
  p.min_p = 1.0f;
  EXPECT_EQ(Bench(p, {2.0f, 2.0f, 1.0f}).support(), (Set{0, 1}));
  p.min_p = 0.5f;
  p.top_k = 3;
  EXPECT_EQ(Bench(p, log_of({0.4, 0.22, 0.2 - 0.01, 0.19})).support(), (Set{0, 1}));
  // Temperature comes first: at 2 the ratio 0.21/0.4 becomes its square root.
  p.temperature = 2.0f;
  p.min_p = 0.7f;
  EXPECT_EQ(Bench(p, log_of({0.4, 0.21, 0.17, 0.19})).support(), (Set{0, 1}));
}

TEST(Sampler, FiltersDoNotDisturbSurvivorsDraws) {
  // Wherever the free draw lands inside the filtered set, the filtered draw is the same token.
  const auto row = noisy_row(5000);
  Bench free(SamplingParams{}, row);
  SamplingParams p;
  p.top_k = 60;
  Bench top_k(p, row);
  p = {};
  p.top_p = 0.8f;
  Bench top_p(p, row);
  p = {};
  p.min_p = 0.02f;
  Bench min_p(p, row);
  for (Bench* filtered : {&top_k, &top_p, &min_p}) {
    const Set kept = filtered->support(4000);
    int inside = 0;
    for (uint32_t i = 0; i < 4000; ++i) {
      const TokenId t = free.token(i);
      if (!kept.contains(t)) continue;
      ++inside;
      EXPECT_EQ(filtered->token(i), t);
    }
    EXPECT_GT(inside, 100);
  }
}

std::vector<TokenId> twenty(SamplingParams params, uint32_t choice = 0) {
  Bench b(std::move(params), noisy_row(1000), choice);
  std::vector<TokenId> out;
  for (uint32_t i = 0; i < 20; ++i) out.push_back(b.token(i));
  return out;
}

TEST(Sampler, SameSeedSameTokensWhateverRanBefore) {
  SamplingParams p;
  p.seed = 42;
  const auto forward = twenty(p);
  Bench b(p, noisy_row(1000));
  for (uint32_t i = 20; i-- > 0;) EXPECT_EQ(b.token(i), forward[i]);
  p.seed = 43;
  EXPECT_NE(twenty(p), forward);
  p.seed = 42 + (uint64_t{1} << 32);  // both halves of the seed count
  EXPECT_NE(twenty(p), forward);
}

TEST(Sampler, ChoicesOfOneSeedDiffer) {
  SamplingParams p;
  p.seed = 7;
  std::set<std::vector<TokenId>> texts;
  for (uint32_t choice = 0; choice < 4; ++choice) {
    EXPECT_EQ(twenty(p, choice), twenty(p, choice));
    texts.insert(twenty(p, choice));
  }
  EXPECT_EQ(texts.size(), 4u);
  EXPECT_TRUE(texts.contains(twenty(p)));  // n = 1 is choice 0
}

TEST(Sampler, RepetitionPenaltySeesPromptAndOutputOncePerToken) {
  auto p = greedy();
  p.repetition_penalty = 2.0f;
  p.logprobs = 0;
  Bench b(p, {4.0f, 3.0f, -1.0f, -1.5f});
  EXPECT_EQ(b.token(), 0);
  b.sampler.observe_prompt(std::vector<TokenId>{0, 0, 0});  // 4 -> 2, not 0.5
  EXPECT_EQ(b.token(), 1);
  b.sampler.observe_output(1);  // 3 -> 1.5 < 2
  EXPECT_EQ(b.token(), 0);
  Bench negative(p, {-1.0f, -1.5f});
  negative.sampler.observe_output(0);  // -1 -> -2
  EXPECT_EQ(negative.token(), 1);
}

TEST(Sampler, PresenceAndFrequencyLookAtTheOutputOnly) {
  auto p = greedy();
  p.presence_penalty = 1.0f;
  Bench presence(p, {4.0f, 3.5f, 0.0f});
  presence.sampler.observe_prompt(std::vector<TokenId>{0, 0, 0});
  EXPECT_EQ(presence.token(), 0);
  presence.sampler.observe_output(0);
  EXPECT_EQ(presence.token(), 1);
  for (int i = 0; i < 9; ++i) presence.sampler.observe_output(0);
  presence.sampler.observe_output(1);  // 3 and 2.5: once per token, however often
  EXPECT_EQ(presence.token(), 0);

  p = greedy();
  p.frequency_penalty = 0.5f;
  Bench frequency(p, {4.0f, 2.75f, 0.0f});
  frequency.sampler.observe_prompt(std::vector<TokenId>{0, 0, 0, 0});
  EXPECT_EQ(frequency.token(), 0);
  frequency.sampler.observe_output(0);
  frequency.sampler.observe_output(0);
  EXPECT_EQ(frequency.token(), 0);  // 3.0
  frequency.sampler.observe_output(0);
  EXPECT_EQ(frequency.token(), 1);  // 2.5
  p.frequency_penalty = -0.5f;      // negative: encourages
  Bench more(p, {4.0f, 3.75f});
  more.sampler.observe_output(1);
  EXPECT_EQ(more.token(), 1);
}

TEST(Sampler, RepetitionComesBeforeFrequencyAndPresence) {
  auto p = greedy();
  p.repetition_penalty = 2.0f;
  p.presence_penalty = 1.0f;
  Bench b(p, {4.0f, 1.25f});  // (4/2) - 1 = 1 < 1.25; the other order would give 1.5
  b.sampler.observe_output(0);
  EXPECT_EQ(b.token(), 1);
}

TEST(Sampler, HistoryGrowsWithDistinctTokens) {
  auto p = greedy();
  p.frequency_penalty = 1.0f;
  std::vector<float> row(5000, 0.0f);
  Bench b(p, row);
  for (TokenId t = 0; t < 5000; ++t) {
    EXPECT_EQ(b.token(), t);
    b.sampler.observe_output(t);
  }
  EXPECT_EQ(b.token(), 0);
}

TEST(Sampler, LogitBiasIsAddedBeforePenalties) {
  auto p = greedy();
  p.logit_bias = {{2, 100.0f}, {0, -100.0f}, {-5, 1.0f}, {400, 1.0f}};  // unknown ids do nothing
  EXPECT_EQ(Bench(p, {5.0f, 4.0f, -20.0f}).token(), 2);
  p.logit_bias = {{0, -2.0f}};
  p.repetition_penalty = 2.0f;
  Bench b(p, {4.0f, 1.5f});  // (4 - 2) / 2 = 1
  b.sampler.observe_prompt(std::vector<TokenId>{0});
  EXPECT_EQ(b.token(), 1);
}

TEST(Sampler, AllowedTokensAndLateTokens) {
  SamplingParams p;
  p.allowed_tokens = std::vector<TokenId>{3, 1, 1, 99, -2};
  EXPECT_EQ(Bench(p, {9.0f, 1.0f, 9.0f, 1.5f}).support(), (Set{1, 3}));

  auto q = greedy();
  q.min_tokens = 2;
  q.stop_token_ids = {2};
  Bench b(q, {9.0f, 1.0f, 8.0f, 1.5f}, 0, {0});
  EXPECT_EQ(b.token(10, 0), 3);
  EXPECT_EQ(b.token(11, 1), 3);
  EXPECT_EQ(b.token(12, 2), 0);
  q.min_tokens = 0;
  q.ignore_eos = true;  // end tokens never; stop tokens as ever
  EXPECT_EQ(Bench(q, {9.0f, 1.0f, 8.0f, 1.5f}, 0, {0}).token(), 2);
}

TEST(Sampler, MasksThatLeaveNothingAreTheCallersFault) {
  auto p = greedy();
  p.allowed_tokens = std::vector<TokenId>{0};
  p.min_tokens = 1;
  EXPECT_EQ(Bench(p, {1.0f, 2.0f}, 0, {0}).sample().status().code(), ErrorCode::kInvalidArgument);
  p.allowed_tokens = std::vector<TokenId>{};
  EXPECT_EQ(Bench(p, {1.0f, 2.0f}).sample().status().code(), ErrorCode::kInvalidArgument);
}

TEST(Sampler, UnsoundRowsAreErrorsThatNameTheToken) {
  for (size_t n : {1u, 5u, 16u, 100u}) {
    for (float bad : {kNan, -kNan, kInfinity}) {
      auto row = noisy_row(n);
      row[n - 1] = bad;
      for (float temperature : {0.0f, 1.0f}) {
        SamplingParams p;
        p.temperature = temperature;
        const auto r = Bench(p, row).sample(17);
        ASSERT_FALSE(r.ok());
        EXPECT_EQ(r.status().code(), ErrorCode::kInternal);
        EXPECT_NE(r.message().find("token " + std::to_string(n - 1)), std::string::npos) << r.message();
      }
    }
    EXPECT_EQ(Bench(SamplingParams{}, std::vector<float>(n, -kInfinity)).sample().status().code(),
              ErrorCode::kInternal);
    EXPECT_EQ(Bench(greedy(), std::vector<float>(n, -kInfinity)).sample().status().code(),
              ErrorCode::kInternal);
  }
}

TEST(Sampler, MinusInfinityIsNeverDrawn) {
  for (int mode = 0; mode < 4; ++mode) {
    SamplingParams p;
    p.top_k = mode == 1 ? 4 : 0;
    p.top_p = mode == 2 ? 0.999f : 1.0f;
    p.min_p = mode == 3 ? 1e-6f : 0.0f;
    p.temperature = 100.0f;
    std::vector<float> row(100, -kInfinity);
    row[17] = 1.0f;
    row[80] = 2.0f;
    EXPECT_EQ(Bench(p, row).support(500), (Set{17, 80})) << mode;
  }
}

TEST(Sampler, LogprobsAreTheRawLogSoftmax) {
  const auto row = noisy_row(3000, 3.0f);
  double max = -INFINITY, sum = 0.0;
  for (float x : row) max = std::max(max, static_cast<double>(x));
  for (float x : row) sum += std::exp(static_cast<double>(x) - max);
  const double lse = max + std::log(sum);

  SamplingParams p;
  p.logprobs = 5;
  p.temperature = 3.0f;
  p.top_k = 50;
  p.repetition_penalty = 1.7f;
  p.logit_bias = {{12, 40.0f}};
  p.allowed_tokens = std::vector<TokenId>{12, 13};
  Bench b(p, row);
  b.sampler.observe_output(12);
  const auto r = b.sample(3);
  ASSERT_TRUE(r.ok());
  ASSERT_EQ(r->token, 12);
  EXPECT_NEAR(r->logprob, static_cast<double>(row[12]) - lse, 1e-5);
  ASSERT_EQ(r->top.size(), 5u);
  for (size_t i = 0; i < 5; ++i) {
    EXPECT_NEAR(r->top[i].logprob, static_cast<double>(row[static_cast<size_t>(r->top[i].token)]) - lse,
                1e-5);
    if (i > 0) {
      EXPECT_GE(r->top[i - 1].logprob, r->top[i].logprob);
    }
  }
  EXPECT_EQ(r->top[0].token, std::max_element(row.begin(), row.end()) - row.begin());

  p = greedy();
  p.logprobs = 0;
  const auto alone = Bench(p, row).sample();
  ASSERT_TRUE(alone.ok());
  EXPECT_TRUE(alone->top.empty());
  EXPECT_EQ(alone->token, r->top[0].token);
  EXPECT_EQ(alone->logprob, r->top[0].logprob);
}

TEST(Sampler, LogprobTiesGoToTheLowerIdAndShortVocabulariesGiveLess) {
  auto p = greedy();
  p.logprobs = 9;
  const auto r = Bench(p, {1.0f, 2.0f, -kInfinity, 2.0f}).sample();
  ASSERT_TRUE(r.ok());
  ASSERT_EQ(r->top.size(), 3u);
  EXPECT_EQ(r->top[0].token, 1);
  EXPECT_EQ(r->top[1].token, 3);
  EXPECT_EQ(r->top[2].token, 0);
}

TEST(Sampler, AskingForLogprobsChangesNoToken) {
  SamplingParams p;
  p.top_p = 0.95f;
  const auto plain = twenty(p);
  p.logprobs = 20;
  EXPECT_EQ(twenty(p), plain);
}

}  // namespace
}  // namespace kvasir
