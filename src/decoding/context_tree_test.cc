#include "decoding/context_tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>
#include <vector>

namespace kvasir {
namespace {

using Tokens = std::vector<TokenId>;

// The tokens before a place and that place, backwards, as far as contexts go.
Tokens backwards(const Tokens& text, uint32_t position) {
  Tokens context;
  for (uint32_t i = position + 1; i-- > 0 && context.size() < ContextTree::kDepth && text[i] != kNoToken;)
    context.push_back(text[i]);
  return context;
}

// The order by definition: contexts by their tokens from the end back, equal ones by place.
std::vector<uint32_t> sorted(const Tokens& text, std::vector<uint32_t> positions) {
  std::sort(positions.begin(), positions.end(), [&](uint32_t a, uint32_t b) {
    const Tokens x = backwards(text, a), y = backwards(text, b);
    return x != y ? x < y : a < b;
  });
  return positions;
}

std::vector<uint32_t> order_of(const ContextTree& tree, uint32_t some) {
  while (tree.before(some) != ContextTree::kNone) some = tree.before(some);
  std::vector<uint32_t> order;
  for (; some != ContextTree::kNone; some = tree.after(some)) order.push_back(some);
  return order;
}

Tokens random_text(std::mt19937& random, size_t size, uint32_t alphabet) {
  Tokens text;
  while (text.size() < size) {
    if (text.size() > 50 && random() % 30 == 0) {
      const size_t from = random() % (text.size() - 40);
      for (size_t i = 0; i < 40; ++i) text.push_back(text[from + i]);
    } else if (random() % 40 == 0) {
      text.push_back(kNoToken);
    } else {
      text.push_back(static_cast<TokenId>(random() % alphabet));
    }
  }
  return text;
}

TEST(ContextTree, OrdersASmallTextByHand) {
  const Tokens text = {5, 1, 2, 1, 2};  // contexts backwards: 5 | 1 5 | 2 1 5 | 1 2 1 5 | 2 1 2 1 5
  std::vector<ContextTree::Node> nodes(text.size());
  ContextTree tree(nodes);
  EXPECT_TRUE(tree.empty());
  for (uint32_t i = 0; i < text.size(); ++i) tree.insert(text.data(), i);
  EXPECT_EQ(order_of(tree, 0), (std::vector<uint32_t>{3, 1, 4, 2, 0}));
  const Tokens query = {9, 2};
  const auto place = tree.find(text.data(), ContextTree::context_at(query.data(), 1));
  EXPECT_EQ(place.before, 2u);  // 2 1 5 is less than 2 9
  EXPECT_EQ(place.after, 0u);
}

TEST(ContextTree, CommonCountsEqualTokensBackToTheBeginning) {
  const Tokens text = {1, 2, 3, kNoToken, 2, 3, 1, 2, 3};
  const auto common = [&](uint32_t a, uint32_t b) {
    return ContextTree::common(ContextTree::context_at(text.data(), a),
                               ContextTree::context_at(text.data(), b));
  };
  EXPECT_EQ(common(2, 8), 3u);
  EXPECT_EQ(common(2, 5), 2u);
  EXPECT_EQ(common(5, 8), 2u);
  EXPECT_EQ(common(2, 7), 0u);
  EXPECT_EQ(common(3, 3), 0u);  // nothing stands before an end
  const Tokens same(100, 4);
  EXPECT_EQ(
      ContextTree::common(ContextTree::context_at(same.data(), 50), ContextTree::context_at(same.data(), 90)),
      ContextTree::kDepth);
}

TEST(ContextTree, IsTheSortedOrderWhateverIsInsertedAndErased) {
  std::mt19937 random(21);
  for (uint32_t round = 0; round < 30; ++round) {
    const Tokens text = random_text(random, 300, 1 + round % 5);
    std::vector<ContextTree::Node> nodes(text.size());
    ContextTree tree(nodes);
    std::set<uint32_t> inside;
    for (int i = 0; i < 900; ++i) {
      const auto position = static_cast<uint32_t>(random() % text.size());
      if (random() % 3 != 0) {
        tree.insert(text.data(), position);
        inside.insert(position);
      } else {
        tree.erase(text.data(), position);
        inside.erase(position);
      }
      ASSERT_EQ(tree.empty(), inside.empty());
      if (i % 30 != 0 || inside.empty()) continue;
      ASSERT_EQ(order_of(tree, *inside.begin()), sorted(text, {inside.begin(), inside.end()}))
          << round << " " << i;
    }
  }
}

TEST(ContextTree, FindsBetweenWhichPlacesAContextStands) {
  std::mt19937 random(22);
  for (uint32_t round = 0; round < 30; ++round) {
    const uint32_t alphabet = 1 + round % 5;
    const Tokens text = random_text(random, 200, alphabet);
    const Tokens other = random_text(random, 200, alphabet);
    std::vector<ContextTree::Node> nodes(text.size());
    ContextTree tree(nodes);
    std::vector<uint32_t> positions;
    for (uint32_t i = 0; i < text.size(); i += 1 + random() % 3) {
      tree.insert(text.data(), i);
      positions.push_back(i);
    }
    const auto order = sorted(text, positions);
    for (uint32_t i = 0; i < other.size(); ++i) {
      const Tokens context = backwards(other, i);
      ContextTree::Place expected;
      for (const uint32_t position : order) {
        if (backwards(text, position) <= context)
          expected.before = position;
        else if (expected.after == ContextTree::kNone)
          expected.after = position;
      }
      const auto place = tree.find(text.data(), ContextTree::context_at(other.data(), i));
      ASSERT_EQ(place.before, expected.before) << round << " " << i;
      ASSERT_EQ(place.after, expected.after) << round << " " << i;
    }
  }
}

TEST(ContextTree, TreesOverTheSameNodesStayApart) {
  std::mt19937 random(23);
  const Tokens text = random_text(random, 300, 3);
  std::vector<ContextTree::Node> nodes(text.size());
  ContextTree even(nodes), odd(nodes);
  std::vector<uint32_t> evens, odds;
  for (uint32_t i = 0; i < text.size(); ++i) {
    (i % 2 == 0 ? even : odd).insert(text.data(), i);
    (i % 2 == 0 ? evens : odds).push_back(i);
  }
  EXPECT_EQ(order_of(even, 0), sorted(text, evens));
  EXPECT_EQ(order_of(odd, 1), sorted(text, odds));
}

// What an order of growing keys makes of a tree that does not balance itself: branches too long to be kept.
TEST(ContextTree, StaysShallowOnSortedAndOnEqualContexts) {
  constexpr uint32_t kSize = 200000;
  for (const bool equal : {false, true}) {
    Tokens text(kSize);
    for (uint32_t i = 0; i < kSize; ++i) text[i] = equal ? 1 : static_cast<TokenId>(i);
    std::vector<ContextTree::Node> nodes(kSize);
    ContextTree tree(nodes);
    for (uint32_t i = 0; i < kSize; ++i) tree.insert(text.data(), i);
    EXPECT_EQ(order_of(tree, 0).size(), kSize) << equal;  // none was left out
  }
}

}  // namespace
}  // namespace kvasir
