#include "tokenizer/bpe_merger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "tokenizer/tokenizer_fixture.h"

namespace kvasir {
namespace {

// The definition, done literally: of all neighbours that merge take the one of lowest rank, leftmost among
// equals.
std::vector<TokenId> merge_naively(const MergeTable& table, std::vector<TokenId> symbols) {
  for (;;) {
    std::optional<size_t> best;
    Merge best_merge;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const Merge m = table.find(symbols[i], symbols[i + 1]);
      if (m.rank < best_merge.rank) {
        best_merge = m;
        best = i;
      }
    }
    if (!best) return symbols;
    symbols[*best] = best_merge.merged;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(*best) + 1);
  }
}

// Merges between random pairs; ranks in random order, so that a merge often makes a pair of lower rank than
// its own.
MergeTable random_table(TestRng* rng, TokenId letters, uint32_t merges) {
  MergeTable table(merges);
  std::vector<uint32_t> ranks(merges);
  for (uint32_t i = 0; i < merges; ++i) ranks[i] = i;
  for (uint32_t i = merges; i > 1; --i) std::swap(ranks[i - 1], ranks[rng->below(i)]);
  for (uint32_t i = 0; i < merges; ++i) {
    const auto tokens = static_cast<uint64_t>(letters) + i;
    table.set(static_cast<TokenId>(rng->below(tokens)), static_cast<TokenId>(rng->below(tokens)),
              {ranks[i], letters + static_cast<TokenId>(i)});
  }
  return table;
}

TEST(BpeMerger, ShortAndLongDoWhatTheDefinitionSays) {
  TestRng rng(21);
  BpeScratch scratch;
  for (int round = 0; round < 3000; ++round) {
    const auto letters = static_cast<TokenId>(1 + rng.below(4));
    const MergeTable table = random_table(&rng, letters, static_cast<uint32_t>(rng.below(30)));
    std::vector<TokenId> symbols(rng.below(80));
    for (TokenId& s : symbols) s = static_cast<TokenId>(rng.below(static_cast<uint64_t>(letters)));
    const std::vector<TokenId> expected = merge_naively(table, symbols);
    for (auto* merge : {&merge_short, &merge_long, &merge_symbols}) {
      std::vector<TokenId> out = {-7};
      scratch.symbols = symbols;
      merge(table, &scratch, &out);
      ASSERT_EQ(out.front(), -7);
      ASSERT_EQ(std::vector<TokenId>(out.begin() + 1, out.end()), expected) << "round " << round;
    }
  }
}

TEST(MergeTable, ALaterMergeOfAPairReplacesAnEarlierOne) {
  MergeTable table(2);
  table.set(1, 2, {0, 5});
  table.set(1, 2, {1, 6});
  EXPECT_EQ(table.find(1, 2).merged, 6);
  EXPECT_EQ(table.find(1, 2).rank, 1u);
  EXPECT_EQ(table.find(2, 1).rank, Merge::kNoRank);
}

TEST(MergeQueue, GivesLowestRankThenLeftmost) {
  TestRng rng(4);
  MergeQueue queue;
  for (int round = 0; round < 200; ++round) {
    queue.clear();
    std::vector<std::pair<uint32_t, uint32_t>> expected;
    const auto pop = [&] {
      const auto least = std::min_element(expected.begin(), expected.end());
      const MergeQueue::Candidate c = queue.pop();
      ASSERT_EQ(std::make_pair(c.rank, c.position), *least);
      expected.erase(least);
    };
    for (int i = 0; i < 100; ++i) {
      const auto rank = static_cast<uint32_t>(rng.below(5)), position = static_cast<uint32_t>(rng.below(50));
      queue.push({rank, position});
      expected.emplace_back(rank, position);
      if (rng.below(3) == 0) pop();
    }
    while (!expected.empty()) pop();
    EXPECT_TRUE(queue.empty());
  }
}

}  // namespace
}  // namespace kvasir
