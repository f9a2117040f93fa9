#include "decoding/suffix_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>
#include <string>

#include "decoding/drafter_rig.h"

namespace kvasir {
namespace {

Tokens suffix(const Tokens& known, uint32_t most = 8, SuffixOptions options = {}) {
  SuffixDrafter drafter(1, options);
  drafter.open(0, 1000);
  return drafted(drafter, 0, known, most);
}

// No doubt and no bounds: the votes alone.
constexpr SuffixOptions kVotes{.doubt = 0, .min_path = 0, .length_factor = 100};

Tokens counting(TokenId from, size_t size) {
  Tokens tokens(size);
  for (size_t i = 0; i < size; ++i) tokens[i] = from + static_cast<TokenId>(i);
  return tokens;
}

Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

TEST(SuffixDrafter, ALongerMatchWeighsMoreThanSeveralShorterOnes) {
  // 1 2 3 -> 4 once; 9 3 -> 5 three times: weights 1 against three times 1/4.
  const Tokens known = {1, 2, 3, 4, 9, 3, 5, 8, 3, 5, 7, 3, 5, 0, 1, 2, 3};
  EXPECT_EQ(suffix(known, 1, kVotes), (Tokens{4}));
  // Weights without regard to length: the majority.
  SuffixOptions flat = kVotes;
  flat.gain = 1;
  EXPECT_EQ(suffix(known, 1, flat), (Tokens{5}));
}

TEST(SuffixDrafter, EnoughShorterMatchesOutweighALongerOne) {
  // 2 3 -> 4 once, weight 1; 3 -> 5 three times, weight 1/2 each.
  EXPECT_EQ(suffix({2, 3, 4, 9, 3, 5, 8, 3, 5, 7, 3, 5, 0, 2, 3}, 1, kVotes), (Tokens{5}));
}

TEST(SuffixDrafter, OfEqualsTheLatestWins) {
  EXPECT_EQ(suffix({1, 2, 7, 0, 1, 2, 8, 5, 1, 2}, 2, kVotes), (Tokens{8, 5}));
}

TEST(SuffixDrafter, IsNoLongerThanTheFactorTimesTheMatch) {
  SuffixOptions options = kVotes;
  options.length_factor = 2;
  const Tokens text = counting(10, 60);
  EXPECT_EQ(suffix(text + Tokens{15}, 16, options).size(), 2u);
  EXPECT_EQ(suffix(text + Tokens{15, 16, 17}, 16, options).size(), 6u);
  EXPECT_EQ(suffix(text + Tokens{15, 16, 17}, 5, options).size(), 5u);
  options.length_factor = 0.5f;
  EXPECT_EQ(suffix(text + Tokens{15}, 16, options).size(), 0u);
}

TEST(SuffixDrafter, StopsWhereThePathIsUnlikely) {
  // 1 -> 2 -> 3 or 4 or 5: shares 1, then 1/3.
  const Tokens known = {1, 2, 3, 1, 2, 4, 1, 2, 5, 1};
  SuffixOptions options = kVotes;
  options.gain = 1;
  options.min_path = 0.32f;
  EXPECT_EQ(suffix(known, 2, options), (Tokens{2, 5}));
  options.min_path = 0.34f;
  EXPECT_EQ(suffix(known, 2, options), (Tokens{2}));
}

TEST(SuffixDrafter, DoubtMakesShortMatchesUnlikely) {
  // One place that agrees in n tokens, weight 1, against a doubt of 2 / 2^n; the doubt halves with each
  // token.
  const Tokens text = counting(10, 60);
  SuffixOptions options = kVotes;
  options.doubt = 2;
  options.min_path = 0.49f;
  EXPECT_EQ(suffix(text + Tokens{15}, 1, options).size(), 1u);      // 1 / 2
  EXPECT_EQ(suffix(text + Tokens{15}, 2, options).size(), 1u);      // 1 / 2 * 2 / 3
  EXPECT_EQ(suffix(text + Tokens{15, 16}, 2, options).size(), 2u);  // 2 / 3 * 4 / 5
  options.min_path = 0.51f;
  EXPECT_EQ(suffix(text + Tokens{15}, 1, options).size(), 0u);
  EXPECT_EQ(suffix(text + Tokens{15, 16}, 3, options).size(), 2u);  // 2 / 3 * 4 / 5 * 8 / 9 is below
}

TEST(SuffixDrafter, EvidenceIsTheShareOfTheFirstToken) {
  SuffixDrafter drafter(1);
  drafter.open(0, 200);
  Tokens known = counting(10, 60);
  uint32_t last = 0;
  for (TokenId token = 15; token < 35; ++token) {
    known.push_back(token);
    const uint32_t evidence = draft_for(drafter, 0, known, 4).evidence;
    EXPECT_GE(evidence, last);
    last = evidence;
  }
  EXPECT_EQ(last, Draft::kEvidences - 1);  // 20 tokens agree
}

constexpr SuffixOptions kSharing{.shared_bytes = size_t{1} << 20};

TEST(SuffixDrafter, ReadsPastOutputsOfTheSameSaltAndNoOthers) {
  SuffixDrafter drafter(3, kSharing);
  const Tokens prompt = counting(9000, 5), output = counting(100, 50);
  const Tokens start = {1, 2, 3, 110, 111, 112};
  drafter.open(0, 200);
  drafted(drafter, 0, prompt + output, 8, 50, "ann");
  drafter.open(1, 200);
  EXPECT_EQ(drafted(drafter, 1, start, 3, 0, "ann"), Tokens{});  // not before it has ended
  drafter.close(0);
  EXPECT_EQ(drafted(drafter, 1, start, 3, 0, "ann"), (Tokens{113, 114, 115}));
  EXPECT_EQ(drafted(drafter, 1, start + Tokens{9000, 9001, 9002}, 3, 0, "ann"), Tokens{});  // of the prompt
  drafter.close(1);
  const std::string too_long(OutputStore::kLongestTenant + 1, 'x');
  for (const std::string& other : {std::string("bob"), std::string(), std::string("an"), too_long}) {
    drafter.open(2, 200);
    EXPECT_EQ(drafted(drafter, 2, start, 3, 0, other), Tokens{}) << other;
    drafter.close(2);
  }
}

TEST(SuffixDrafter, APastOutputEndsWhereItEnded) {
  SuffixDrafter drafter(1, kSharing);
  for (const TokenId first : {100, 600}) {
    drafter.open(0, 200);
    drafted(drafter, 0, counting(first, 50), 8, 50, "ann");
    drafter.close(0);
  }
  drafter.open(0, 200);
  EXPECT_EQ(drafted(drafter, 0, counting(140, 9), 8, 0, "ann"), (Tokens{149}));
}

TEST(SuffixDrafter, KeepsTheOutputAsItGrows) {
  SuffixDrafter drafter(1, kSharing);
  const Tokens whole = counting(9000, 7) + counting(100, 60);
  drafter.open(0, 100);
  for (uint32_t generated = 3; generated <= 60; generated += 3)
    drafted(drafter, 0, {whole.data(), 7 + generated}, 4, generated);
  drafter.close(0);
  EXPECT_EQ(drafter.store().tokens(), 60u);
  drafter.open(0, 100);
  EXPECT_EQ(drafted(drafter, 0, counting(150, 7), 8), (Tokens{157, 158, 159}));
}

TEST(SuffixDrafter, WithoutAStoreKeepsNothing) {
  SuffixDrafter drafter(2);
  drafter.open(0, 100);
  drafted(drafter, 0, counting(100, 60), 8, 60, "ann");
  drafter.close(0);
  EXPECT_EQ(drafter.store().tokens(), 0u);
  EXPECT_EQ(drafter.store().bytes_bound(), 0u);
}

TEST(SuffixDrafter, HoldsWhatItSaysForEachTokenOfOpenSlots) {
  SuffixDrafter plain(2), sharing(2, {.shared_bytes = 100000});
  EXPECT_LE(sharing.store().bytes_bound(), 100000u);
  plain.open(0, 1000);
  EXPECT_EQ(plain.bytes(), 16000u);
  sharing.open(0, 1000);
  sharing.open(1, 100);
  EXPECT_EQ(sharing.bytes(), 22000u);
  sharing.close(0);
  EXPECT_EQ(sharing.bytes(), 2000u);
}

// By brute force: every place votes, with all tokens that it has in common with the end. Equal to the drafter
// where it asks every place, and a tie cannot decide.
Tokens reference(const Tokens& known, uint32_t most, const SuffixOptions& o) {
  std::map<size_t, double> weights;  // of places
  size_t longest = 0;
  for (size_t place = 0; place + 1 < known.size(); ++place) {
    size_t n = 0;
    while (n <= place && n < ContextTree::kDepth && known[place - n] == known[known.size() - 1 - n]) ++n;
    if (n >= o.min_match) weights[place] = std::pow(o.gain, n);
    longest = std::max(longest, n);
  }
  Tokens text = known, draft;
  double path = 1, doubt = o.doubt;
  const auto bound =
      std::min<size_t>(most, static_cast<size_t>(o.length_factor * static_cast<float>(longest)));
  while (draft.size() < bound && !weights.empty()) {
    std::map<TokenId, double> votes;
    double total = doubt;
    for (const auto& [place, weight] : weights) {
      votes[text[place + 1 + draft.size()]] += weight;
      total += weight;
    }
    std::vector<std::pair<double, TokenId>> ranked;
    for (const auto& [token, weight] : votes) ranked.push_back({weight, token});
    std::sort(ranked.rbegin(), ranked.rend());
    path *= ranked[0].first / total;
    if (path < o.min_path) break;
    if (ranked.size() > 1 && ranked[1].first > ranked[0].first * 0.999) return {kNoToken};
    std::erase_if(weights, [&](auto& w) { return text[w.first + 1 + draft.size()] != ranked[0].second; });
    doubt /= o.gain;
    draft.push_back(ranked[0].second);
    text.push_back(ranked[0].second);
  }
  return draft;
}

TEST(SuffixDrafter, EqualsTheDefinitionByBruteForce) {
  std::mt19937 random(31);
  size_t compared = 0, ties = 0;
  for (int round = 0; round < 200; ++round) {
    SuffixOptions options;
    options.gain = 1.37f + static_cast<float>(random() % 100) * 0.01f;
    options.doubt = static_cast<float>(random() % 5) * 0.73f;
    options.min_path = static_cast<float>(random() % 4) * 0.137f;
    options.length_factor = 1 + static_cast<float>(random() % 8);
    options.min_match = 1 + random() % 3;
    const uint32_t alphabet = 30 + random() % 30;
    SuffixDrafter drafter(1, options);
    drafter.open(0, 300);
    Tokens known;
    while (known.size() < 300) {
      if (random() % 6 == 0 && known.size() > 30) {
        const size_t from = random() % (known.size() - 20), n = 2 + random() % 18;
        for (size_t i = 0; i < n && known.size() < 300; ++i) known.push_back(known[from + i]);
      } else {
        known.push_back(static_cast<TokenId>(random() % alphabet));
      }
      const uint32_t most = 1 + random() % Draft::kMost;
      // At most 31 places are like the end of this text.
      const auto alike = std::count(known.begin(), known.end() - 1, known.back());
      const Tokens draft = drafted(drafter, 0, known, most);
      if (alike >= static_cast<ptrdiff_t>(options.voters)) continue;
      const Tokens expected = reference(known, most, options);
      if (expected == Tokens{kNoToken}) {
        ++ties;
        continue;
      }
      ASSERT_EQ(draft, expected) << "round " << round << " tokens " << known.size();
      ++compared;
    }
  }
  EXPECT_GT(compared, 5000u) << ties;
}

}  // namespace
}  // namespace kvasir
