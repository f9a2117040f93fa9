// Statistics of accepting and redrawing guesses, and proof that they would notice errors: five wrong
// verifiers that have to fail. Seeds are fixed, so a test that passes always does.

#include "decoding/rejection.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>
#include <random>

#include "base/philox.h"
#include "decoding/sampler.h"

namespace kvasir {
namespace {

using Odds = std::vector<double>;

constexpr uint32_t kTrials = 200'000;
constexpr uint32_t kTestStream = 9;  // of the drafter in these tests

double uniform(uint64_t seed, uint32_t position, uint32_t word) {
  const auto words = philox4x32({word, position, 0, kTestStream}, {static_cast<uint32_t>(seed), 0});
  return (words[0] + 0.5) * 0x1p-32;
}

TokenId draw(const Odds& odds, double u) {
  const double total = std::accumulate(odds.begin(), odds.end(), 0.0);
  double sum = 0;
  for (size_t i = 0; i < odds.size(); ++i) {
    sum += odds[i];
    if (u * total < sum) return static_cast<TokenId>(i);
  }
  return static_cast<TokenId>(odds.size() - 1);
}

// A step of verification: what the target and the drafter think, the guess and the number it was drawn with.
struct Step {
  Odds p, q;
  TokenId guess;
  double drawn_with;
  RaceKey key;
};
using Verifier = std::function<TokenId(const Step&)>;

TokenId verify(const Step& s) {
  std::vector<Candidate> survivors;
  const double most = *std::max_element(s.p.begin(), s.p.end());
  for (size_t i = 0; i < s.p.size(); ++i) {
    if (s.p[i] > 0)
      survivors.push_back({static_cast<float>(std::log(s.p[i] / most)), static_cast<TokenId>(i)});
  }
  const std::vector<float> q(s.q.begin(), s.q.end());
  return accept_or_redraw(survivors, q, s.guess, s.key);
}

// Pearson's chi-square of counts against odds, with cells of few pooled; the deviations from the mean of its
// distribution (Wilson and Hilferty).
double deviations(const std::vector<uint64_t>& counts, const Odds& odds) {
  const double n = static_cast<double>(std::accumulate(counts.begin(), counts.end(), uint64_t{0}));
  double chi = 0, pooled_seen = 0, pooled_expected = 0;
  int cells = 0;
  for (size_t i = 0; i < odds.size(); ++i) {
    const double expected = n * odds[i], seen = static_cast<double>(counts[i]);
    if (expected < 5) {
      pooled_seen += seen;
      pooled_expected += expected;
      continue;
    }
    chi += (seen - expected) * (seen - expected) / expected;
    ++cells;
  }
  if (pooled_seen > 0 && pooled_expected < 1e-9) return 1e9;  // what cannot happen has
  if (pooled_expected > 0) {
    chi += (pooled_seen - pooled_expected) * (pooled_seen - pooled_expected) / pooled_expected;
    ++cells;
  }
  const double dof = std::max(cells - 1, 1);
  return (std::cbrt(chi / dof) - (1 - 2 / (9 * dof))) / std::sqrt(2 / (9 * dof));
}

constexpr double kUnlikely = 3.72;  // one in ten thousand

Odds random_odds(std::mt19937& rng, size_t vocab, size_t without = 0) {
  Odds odds(vocab);
  for (double& x : odds) x = std::exp(std::normal_distribution<double>(0, 1.5)(rng));
  for (size_t i = 0; i < without; ++i) odds[(rng() + i) % vocab] = 0;
  const double total = std::accumulate(odds.begin(), odds.end(), 0.0);
  for (double& x : odds) x /= total;
  return odds;
}

Odds residual(const Odds& p, const Odds& q) {
  Odds r(p.size());
  for (size_t i = 0; i < p.size(); ++i) r[i] = std::max(0.0, p[i] - q[i]);
  const double total = std::accumulate(r.begin(), r.end(), 0.0);
  for (double& x : r) x = total > 0 ? x / total : 0;
  return r;
}

struct Outcome {
  std::vector<uint64_t> tokens, redrawn;
  uint64_t accepted = 0;
};

Outcome run(const Odds& p, const Odds& q, const Verifier& verifier) {
  Outcome out{std::vector<uint64_t>(p.size()), std::vector<uint64_t>(p.size()), 0};
  for (uint32_t i = 0; i < kTrials; ++i) {
    const double u = uniform(5, i, 0);
    const Step step{p, q, draw(q, u), u, {.seed = 11, .position = i, .choice = 0, .stream = 0}};
    const TokenId token = verifier(step);
    ++out.tokens[static_cast<size_t>(token)];
    if (token == step.guess)
      ++out.accepted;
    else
      ++out.redrawn[static_cast<size_t>(token)];
  }
  return out;
}

void expect_exact(const Odds& p, const Odds& q) {
  const Outcome out = run(p, q, verify);
  EXPECT_LT(deviations(out.tokens, p), kUnlikely);
  double overlap = 0;
  for (size_t i = 0; i < p.size(); ++i) overlap += std::min(p[i], q[i]);
  const double sigma = std::sqrt(std::max(overlap * (1 - overlap), 1e-12) / kTrials);
  EXPECT_NEAR(static_cast<double>(out.accepted) / kTrials, overlap, 4 * sigma + 1e-6);
  if (out.accepted < kTrials - 1000) {
    EXPECT_LT(deviations(out.redrawn, residual(p, q)), kUnlikely);
  }
}

TEST(Rejection, DrawsFromTheTargetsDistributionWhateverTheDrafters) {
  std::mt19937 rng(3);
  for (const size_t vocab : {2u, 8u, 32u}) {
    const Odds p = random_odds(rng, vocab), q = random_odds(rng, vocab);
    expect_exact(p, q);
    expect_exact(p, p);
  }
}

TEST(Rejection, HoldsWhereSupportsDiffer) {
  std::mt19937 rng(4);
  expect_exact(random_odds(rng, 16, 6), random_odds(rng, 16));  // as after top_p
  expect_exact(random_odds(rng, 16), random_odds(rng, 16, 6));
  expect_exact({0.5, 0.5, 0, 0}, {0, 0, 0.3, 0.7});  // nothing in common
}

TEST(Rejection, AGuessThatWasNoDrawIsAcceptedAsOftenAsTheTargetDrawsIt) {
  std::mt19937 rng(5);
  const Odds p = random_odds(rng, 12);
  for (const size_t guess : {size_t{0}, size_t{7}}) {
    Odds q(12, 0.0);
    q[guess] = 1;
    expect_exact(p, q);
    const Outcome with_no_odds = run(p, q, [](const Step& s) {
      std::vector<Candidate> survivors;
      for (size_t i = 0; i < s.p.size(); ++i)
        survivors.push_back({static_cast<float>(std::log(s.p[i])), static_cast<TokenId>(i)});
      return accept_or_redraw(survivors, {}, s.guess, s.key);
    });
    EXPECT_LT(deviations(with_no_odds.tokens, p), kUnlikely);
  }
}

TEST(Rejection, SameKeySameToken) {
  std::mt19937 rng(6);
  const Step s{random_odds(rng, 20),
               random_odds(rng, 20),
               3,
               0.5,
               {.seed = 1, .position = 2, .choice = 3, .stream = 0}};
  EXPECT_EQ(verify(s), verify(s));
}

// Two guesses after each other, where what may follow depends on the first token: the joint distribution of
// the first two tokens of an answer.
double joint_deviations(const Verifier& verifier, bool bonus_from_the_row_before = false) {
  constexpr size_t kVocab = 4;
  std::mt19937 rng(8);
  const Odds first = random_odds(rng, kVocab), draft_first = random_odds(rng, kVocab);
  std::vector<Odds> second;
  for (size_t i = 0; i < kVocab; ++i) second.push_back(random_odds(rng, kVocab));
  Odds joint(kVocab * kVocab);
  for (size_t a = 0; a < kVocab; ++a)
    for (size_t b = 0; b < kVocab; ++b) joint[a * kVocab + b] = first[a] * second[a][b];
  std::vector<uint64_t> counts(joint.size());
  for (uint32_t i = 0; i < kTrials; ++i) {
    const double u = uniform(21, i, 0);
    const TokenId guess = draw(draft_first, u);
    const auto a = static_cast<size_t>(
        verifier({first, draft_first, guess, u, {.seed = 31, .position = 2 * i, .choice = 0, .stream = 0}}));
    // The token after a guess that was accepted is an ordinary draw; after another one it comes in the next
    // step.
    const bool accepted = a == static_cast<size_t>(guess);
    const Odds& follows = accepted && bonus_from_the_row_before ? first : second[a];
    std::vector<Candidate> runners;
    for (size_t t = 0; t < kVocab; ++t)
      runners.push_back({static_cast<float>(std::log(follows[t])), static_cast<TokenId>(t)});
    const auto b =
        static_cast<size_t>(race(runners, {.seed = 31, .position = 2 * i + 1, .choice = 0, .stream = 0}));
    ++counts[a * kVocab + b];
  }
  return deviations(counts, joint);
}

TEST(Rejection, TokensInARowAreJointlyRight) {
  EXPECT_LT(joint_deviations(verify), kUnlikely);
}

// A sampler with a guess draws from what it draws from without one, after top_k, top_p and min_p too.
TEST(Rejection, SamplersKeepTheirDistribution) {
  constexpr uint32_t kVocab = 24, kDraws = 60'000;
  std::mt19937 rng(9);
  std::vector<float> logits(kVocab);
  for (float& x : logits) x = static_cast<float>(rng() % 1000) / 250.0f;
  for (int kind = 0; kind < 4; ++kind) {
    SamplingParams params;
    params.temperature = 0.8f;
    params.seed = 4;
    if (kind == 1) params.top_k = 7;
    if (kind == 2) params.top_p = 0.8f;
    if (kind == 3) params.min_p = 0.1f;
    const Sampler sampler(params, 0, kVocab, {}, kernel_table(best_isa()));
    SamplerScratch scratch;
    std::vector<uint64_t> plain(kVocab), guessed(kVocab);
    const auto best = static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    for (uint32_t i = 0; i < kDraws; ++i) {
      std::vector<float> row = logits;
      ++plain[static_cast<size_t>(sampler.sample(row, i, i, scratch).value().token)];
      row = logits;
      const TokenId guess = i % 3 == 0 ? best : static_cast<TokenId>(i % kVocab);
      ++guessed[static_cast<size_t>(sampler.sample(row, kDraws + i, i, scratch, guess).value().token)];
    }
    Odds odds(kVocab);
    for (size_t t = 0; t < kVocab; ++t) {
      odds[t] = static_cast<double>(plain[t] + guessed[t]) / (2.0 * kDraws);
      EXPECT_EQ(plain[t] == 0, guessed[t] == 0) << "kind " << kind << " token " << t;
    }
    EXPECT_LT(deviations(guessed, odds), kUnlikely) << "kind " << kind;
    EXPECT_LT(deviations(plain, odds), kUnlikely) << "kind " << kind;
  }
}

// --- errors that have been made, and that these statistics must see ---

double accept_number(const RaceKey& key) {
  const auto words = philox4x32({0, key.position, key.choice, kAcceptStream},
                                {static_cast<uint32_t>(key.seed), static_cast<uint32_t>(key.seed >> 32)});
  return (words[0] + 0.5) * 0x1p-32;
}

bool accepts(const Step& s, double u, double leniency = 1) {
  const auto d = static_cast<size_t>(s.guess);
  return u * s.q[d] < s.p[d] * leniency;
}

TokenId redraw(const Step& s) {
  return draw(residual(s.p, s.q), uniform(77, s.key.position, 1));
}

class Mutant : public testing::Test {
 protected:
  std::mt19937 rng{12};
  Odds p = random_odds(rng, 12), q = random_odds(rng, 12);
  double seen(const Verifier& mutant) { return deviations(run(p, q, mutant).tokens, p); }
};

TEST_F(Mutant, WrittenOutAgainTheRightVerifierPasses) {
  EXPECT_LT(seen([](const Step& s) { return accepts(s, accept_number(s.key)) ? s.guess : redraw(s); }),
            kUnlikely);
}

TEST_F(Mutant, AcceptingFivePercentTooOftenIsSeen) {
  EXPECT_GT(seen([](const Step& s) { return accepts(s, accept_number(s.key), 1.05) ? s.guess : redraw(s); }),
            kUnlikely);
}

TEST_F(Mutant, AcceptingWithTheNumberOfTheDraftIsSeen) {
  EXPECT_GT(seen([](const Step& s) { return accepts(s, s.drawn_with) ? s.guess : redraw(s); }), kUnlikely);
}

TEST_F(Mutant, ABonusFromTheRowBeforeIsSeen) {
  EXPECT_GT(joint_deviations(verify, true), kUnlikely);
}

TEST_F(Mutant, AResidualThatDoesNotAddUpToOneIsSeen) {
  const auto mutant = [](const Step& s) {
    if (accepts(s, accept_number(s.key))) return s.guess;
    double sum = 0;
    const double u = uniform(77, s.key.position, 1);
    for (size_t i = 0; i < s.p.size(); ++i) {
      sum += std::max(0.0, s.p[i] - s.q[i]);
      if (u < sum) return static_cast<TokenId>(i);
    }
    return static_cast<TokenId>(s.p.size() - 1);
  };
  EXPECT_GT(seen(mutant), kUnlikely);
}

TEST_F(Mutant, ATemperatureOfTheTargetAloneIsSeen) {
  // The guess is drawn from q; the verifier is told of q at another temperature.
  const auto mutant = [](const Step& s) {
    Step told = s;
    double total = 0;
    for (double& x : told.q) total += x = std::pow(x, 0.7);
    for (double& x : told.q) x /= total;
    return verify(told);
  };
  EXPECT_GT(seen(mutant), kUnlikely);
}

}  // namespace
}  // namespace kvasir
