#include "decoding/ngram_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "decoding/drafter_rig.h"

namespace kvasir {
namespace {

Draft ngram(const Tokens& known, uint32_t most = 8, NgramOptions options = {}) {
  NgramDrafter drafter(1, options);
  drafter.open(0, 1000);
  return draft_for(drafter, 0, known, most);
}

Tokens tokens_of(const Draft& draft) {
  return {draft.list().begin(), draft.list().end()};
}

TEST(NgramDrafter, CopiesFromTheMatchAndOnIntoItsOwnDraft) {
  const Tokens known = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3};
  const Draft draft = ngram(known, 12);
  EXPECT_EQ(tokens_of(draft), (Tokens{4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(draft.evidence, 2u);  // three tokens match, one voter
}

TEST(NgramDrafter, NeedsAMatchOfTheLeastLength) {
  EXPECT_EQ(tokens_of(ngram({5, 1, 2, 3, 5})), Tokens{});
  EXPECT_EQ(tokens_of(ngram({5, 1, 2, 3, 5}, 2, {.min_match = 1})), (Tokens{1, 2}));
  EXPECT_EQ(tokens_of(ngram({4, 5, 1, 2, 3, 4, 5}, 2, {.min_match = 3})), Tokens{});
  EXPECT_EQ(tokens_of(ngram({3, 4, 5, 1, 2, 3, 4, 5}, 2, {.min_match = 3})), (Tokens{1, 2}));
  EXPECT_EQ(tokens_of(ngram({7, 7})), Tokens{});
  EXPECT_EQ(tokens_of(ngram({7, 7, 7}, 3)), (Tokens{7, 7, 7}));
}

TEST(NgramDrafter, TheLongestMatchWinsOverTheMostFrequent) {
  // 2 3 was followed by 9 twice, lately; 1 2 3 by 4 once, long ago.
  EXPECT_EQ(tokens_of(ngram({1, 2, 3, 4, 0, 2, 3, 9, 0, 0, 2, 3, 9, 5, 1, 2, 3}, 1)), (Tokens{4}));
}

TEST(NgramDrafter, OfOccurrencesOfTheLongestIndexedMatchThoseThatAgreeFurthestBackVote) {
  const NgramOptions options{.min_match = 2, .max_match = 2, .min_share = 0.5f};
  // Followed by 8 when after 5 5, and by 9 twice when not.
  EXPECT_EQ(tokens_of(ngram({5, 5, 1, 2, 8, 6, 1, 2, 9, 7, 1, 2, 9, 5, 5, 1, 2}, 1, options)), (Tokens{8}));
  // To eight tokens, no further: these two agree over nine and eight tokens, and the later is believed.
  const Tokens nine = {0, 1, 2, 3, 4,  5, 6, 7, 8, 50, 20, 1, 2, 3, 4,
                       5, 6, 7, 8, 60, 0, 1, 2, 3, 4,  5,  6, 7, 8};
  EXPECT_EQ(tokens_of(ngram(nine, 1, options)), (Tokens{60}));
}

TEST(NgramDrafter, TheMostFrequentContinuationWinsAndTheLatestOfEquals) {
  EXPECT_EQ(tokens_of(ngram({1, 2, 7, 1, 2, 8, 1, 2, 7, 0, 1, 2, 9, 0, 1, 2, 7, 6, 1, 2}, 1)), (Tokens{7}));
  const Draft tie = ngram({1, 2, 7, 0, 1, 2, 8, 5, 1, 2}, 2, {.min_share = 0.5f});
  EXPECT_EQ(tokens_of(tie), (Tokens{8, 5}));
  EXPECT_EQ(tie.evidence, 0u);                                               // contested
  EXPECT_EQ(tokens_of(ngram({1, 2, 7, 0, 1, 2, 8, 5, 1, 2}, 2)), Tokens{});  // no more than half of them
}

TEST(NgramDrafter, LooksOnlyAtTheLatestOccurrences) {
  const Tokens known = {1, 2, 7, 1, 2, 7, 1, 2, 7, 1, 2, 8, 9, 1, 2};
  EXPECT_EQ(tokens_of(ngram(known, 1, {.max_match = 2})), (Tokens{7}));
  EXPECT_EQ(tokens_of(ngram(known, 1, {.max_match = 2, .occurrences = 1})), (Tokens{8}));
}

TEST(NgramDrafter, StopsWhereTheOccurrencesPart) {
  const Tokens known = {1, 2, 5, 6, 7, 1, 2, 5, 6, 8, 1, 2, 5, 6, 9, 1, 2};
  const Draft draft = ngram(known, 8);
  EXPECT_EQ(tokens_of(draft), (Tokens{5, 6}));
  EXPECT_EQ(draft.evidence, 4u);  // at the first token they all agree: as sure as eight tokens of one
}

TEST(NgramDrafter, OnlyThoseThatWereRightSoFarVoteOn) {
  // After 1 2: 5 6 once, 3 4 twice and then 0 or 9; 5 6 votes no further when 3 was chosen.
  const Tokens known = {1, 2, 3, 4, 0, 1, 2, 5, 6, 6, 1, 2, 3, 4, 9, 8, 1, 2};
  EXPECT_EQ(tokens_of(ngram(known, 4, {.min_share = 0.5f})), (Tokens{3, 4, 9, 8}));
  EXPECT_EQ(tokens_of(ngram(known, 4)), (Tokens{3, 4}));
}

TEST(NgramDrafter, EvidenceGrowsWithTheMatch) {
  const auto evidence_after = [](uint32_t length) {
    Tokens known;
    for (uint32_t i = 0; i < 60; ++i) known.push_back(static_cast<TokenId>(i));
    for (uint32_t i = 0; i < length; ++i) known.push_back(static_cast<TokenId>(40 - length + i));
    return ngram(known).evidence;
  };
  EXPECT_EQ(evidence_after(2), 1u);
  EXPECT_EQ(evidence_after(3), 2u);
  EXPECT_EQ(evidence_after(4), 3u);
  EXPECT_EQ(evidence_after(7), 3u);
  EXPECT_EQ(evidence_after(8), 4u);
  EXPECT_EQ(evidence_after(12), 5u);
  EXPECT_EQ(evidence_after(16), 6u);
  EXPECT_EQ(evidence_after(31), 6u);
  EXPECT_EQ(evidence_after(32), 7u);
  EXPECT_EQ(evidence_after(33), 7u);
  EXPECT_EQ(ngram({1, 2, 5, 1, 2, 5, 0, 1, 2}).evidence, 4u);                 // two tokens, twice
  EXPECT_EQ(ngram({0, 1, 2, 5, 9, 0, 1, 2, 5, 0, 8, 0, 1, 2}).evidence, 5u);  // three tokens, twice
}

TEST(NgramDrafter, HoldsWhatItSaysForEachTokenOfOpenSlots) {
  NgramDrafter drafter(3);
  EXPECT_EQ(drafter.bytes_per_token(), 56u);
  EXPECT_EQ(drafter.bytes(), 0u);
  drafter.open(0, 100);
  drafter.open(2, 1000);
  EXPECT_EQ(drafter.bytes(), 56u * 1100);
  drafter.close(2);
  EXPECT_EQ(drafter.bytes(), 56u * 100);
}

// The definition, by brute force.
struct Expected {
  Tokens tokens;
  uint32_t length = 0;
  size_t voters = 0;
  bool agreed = false;  // about the first token
};

Expected reference(const Tokens& known, uint32_t most, const NgramOptions& o) {
  const auto suffix_matches = [&](size_t end, size_t n) {  // of known[..end)
    return end >= n && end < known.size() &&
           std::equal(known.end() - static_cast<ptrdiff_t>(n), known.end(),
                      known.begin() + static_cast<ptrdiff_t>(end - n));
  };
  Expected expected;
  std::vector<size_t> ends;
  for (size_t n = o.max_match; n >= o.min_match && ends.empty(); --n) {
    for (size_t end = known.size(); end-- > 0 && ends.size() < o.occurrences;)
      if (suffix_matches(end, n)) ends.push_back(end);
    expected.length = static_cast<uint32_t>(n);
  }
  for (size_t n = o.max_match + 1; !ends.empty() && n <= 4 * o.max_match; ++n) {
    std::vector<size_t> further;
    for (const size_t end : ends)
      if (suffix_matches(end, n)) further.push_back(end);
    if (expected.length + 1 != n || further.empty()) break;
    ends = further;
    expected.length = static_cast<uint32_t>(n);
  }
  Tokens text = known;
  expected.voters = ends.size();
  while (expected.tokens.size() < most && !ends.empty()) {
    std::vector<std::pair<int, TokenId>> counts;  // in the order of first mention
    for (const size_t end : ends) {
      const TokenId token = text[end + expected.tokens.size()];
      const auto at = std::find_if(counts.begin(), counts.end(), [&](auto& c) { return c.second == token; });
      if (at == counts.end())
        counts.push_back({1, token});
      else
        ++at->first;
    }
    const auto best =
        std::max_element(counts.begin(), counts.end(), [](auto& a, auto& b) { return a.first < b.first; });
    if (static_cast<float>(best->first) < o.min_share * static_cast<float>(ends.size())) break;
    if (expected.tokens.empty()) expected.agreed = counts.size() == 1;
    std::erase_if(ends, [&](size_t end) { return text[end + expected.tokens.size()] != best->second; });
    text.push_back(best->second);
    expected.tokens.push_back(best->second);
  }
  return expected;
}

TEST(NgramDrafter, EqualsTheDefinitionByBruteForce) {
  std::mt19937 random(11);
  size_t drafts = 0, long_ones = 0;
  for (int round = 0; round < 150; ++round) {
    NgramOptions options;
    options.min_match = 1 + random() % 3;
    options.max_match = options.min_match + random() % 6;
    options.occurrences = 1 + random() % 20;
    options.min_share = static_cast<float>(random() % 4) * 0.25f;
    const uint32_t alphabet = 1 + random() % 6;
    NgramDrafter drafter(1, options);
    drafter.open(0, 240);
    Tokens known;
    while (known.size() < 240) {
      if (random() % 8 == 0 && known.size() > 20) {  // copies, so that long matches occur
        const size_t from = random() % (known.size() - 10);
        for (size_t i = 0; i < 25 && known.size() < 240; ++i) known.push_back(known[from + i]);
      } else {
        known.push_back(static_cast<TokenId>(random() % alphabet));
      }
      const uint32_t most = 1 + random() % Draft::kMost;
      const Draft draft = draft_for(drafter, 0, known, most);
      const Expected expected = reference(known, most, options);
      ASSERT_EQ(tokens_of(draft), expected.tokens) << "round " << round << " tokens " << known.size();
      drafts += draft.size > 0;
      long_ones += expected.length > options.max_match;
      if (draft.size == 0) continue;
      const uint32_t sure = expected.length * (expected.voters > 1 ? 4 : 1);
      const uint32_t by_length = sure < 3    ? 1
                                 : sure < 4  ? 2
                                 : sure < 8  ? 3
                                 : sure < 12 ? 4
                                 : sure < 16 ? 5
                                 : sure < 32 ? 6
                                             : 7;
      ASSERT_EQ(draft.evidence, expected.agreed ? by_length : 0u);
    }
  }
  EXPECT_GT(drafts, 5000u);
  EXPECT_GT(long_ones, 300u);
}

}  // namespace
}  // namespace kvasir
