#include "decoding/output_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <random>
#include <string>
#include <utility>

namespace kvasir {
namespace {

using Tokens = std::vector<TokenId>;

Tokens counting(TokenId from, size_t size) {
  Tokens tokens(size);
  for (size_t i = 0; i < size; ++i) tokens[i] = from + static_cast<TokenId>(i);
  return tokens;
}

// All outputs that the tenant would find, by walking its tree.
std::vector<Tokens> outputs_in(const OutputStore& store, std::string_view tenant) {
  const ContextTree* tree = store.outputs_of(tenant);
  std::vector<Tokens> outputs;
  if (tree == nullptr) return outputs;
  const TokenId* text = store.text().data();
  const TokenId least = -1;
  const Context none{&least, 0};
  const auto place = tree->find(text, none);
  for (uint32_t at = place.after; at != ContextTree::kNone; at = tree->after(at)) {
    if (text[at - 1] != kNoToken) continue;  // not where one begins
    outputs.emplace_back();
    for (uint32_t i = at; text[i] != kNoToken; ++i) outputs.back().push_back(text[i]);
  }
  std::sort(outputs.begin(), outputs.end());
  return outputs;
}

TEST(OutputStore, KeepsOutputsForTheirTenantOnly) {
  OutputStore store(size_t{1} << 20);
  store.add("a", counting(100, 40));
  store.add("b", counting(500, 50));
  store.add("a", counting(300, 32));
  EXPECT_EQ(outputs_in(store, "a"), (std::vector<Tokens>{counting(100, 40), counting(300, 32)}));
  EXPECT_EQ(outputs_in(store, "b"), (std::vector<Tokens>{counting(500, 50)}));
  EXPECT_EQ(store.outputs_of("c"), nullptr);
  EXPECT_EQ(store.outputs_of(""), nullptr);
  EXPECT_EQ(store.tokens(), 122u);
  EXPECT_EQ(store.tenants(), 2u);
}

TEST(OutputStore, PassesOverShortOutputsAndLongNames) {
  OutputStore store(size_t{1} << 20);
  store.add("a", counting(0, OutputStore::kShortest - 1));
  store.add(std::string(OutputStore::kLongestTenant + 1, 'x'), counting(0, 100));
  EXPECT_EQ(store.tokens(), 0u);
  EXPECT_EQ(store.tenants(), 0u);
  store.add(std::string(OutputStore::kLongestTenant, 'x'), counting(0, 100));
  EXPECT_EQ(store.tokens(), 100u);
}

TEST(OutputStore, KeepsTheEndOfAnOutputThatIsTooLong) {
  OutputStore store(40000);
  const size_t quarter = store.text().size() / 4;
  ASSERT_GT(quarter, 100u);
  store.add("a", counting(0, 100000));
  EXPECT_EQ(outputs_in(store, "a"),
            (std::vector<Tokens>{counting(static_cast<TokenId>(100000 - quarter), quarter)}));
}

TEST(OutputStore, WithoutRoomHoldsNothing) {
  for (const size_t bytes : {size_t{0}, size_t{1000}}) {
    OutputStore store(bytes);
    store.add("a", counting(0, 100));
    EXPECT_EQ(store.outputs_of("a"), nullptr);
    EXPECT_EQ(store.bytes_bound(), 0u);
  }
}

TEST(OutputStore, DropsTheOldestAndForgetsTenantsWithoutOutputs) {
  OutputStore store(40000);
  EXPECT_LE(store.bytes_bound(), 40000u);
  const size_t room = store.text().size();
  std::mt19937 random(5);
  std::deque<std::pair<std::string, Tokens>> added;  // oldest first
  for (int i = 0; i < 400; ++i) {
    const std::string tenant(1, static_cast<char>('a' + random() % 5));
    // Words of their own, and much in common with others.
    Tokens output = counting(i % 3 == 0 ? 7 : i * 1000, 32 + random() % (room / 4 - 32));
    store.add(tenant, output);
    added.emplace_back(tenant, std::move(output));
    size_t left = 0;
    std::vector<std::vector<Tokens>> found(5);
    for (size_t t = 0; t < 5; ++t) {
      found[t] = outputs_in(store, std::string(1, static_cast<char>('a' + t)));
      left += found[t].size();
    }
    ASSERT_GE(left, i == 0 ? 1u : 2u);
    // What is left are the latest ones, each with its tenant.
    std::vector<std::vector<Tokens>> expected(5);
    size_t tokens = 0;
    for (size_t n = added.size() - left; n < added.size(); ++n) {
      expected[static_cast<size_t>(added[n].first[0] - 'a')].push_back(added[n].second);
      tokens += added[n].second.size();
    }
    size_t tenants = 0;
    for (auto& outputs : expected) {
      std::sort(outputs.begin(), outputs.end());
      tenants += !outputs.empty();
    }
    ASSERT_EQ(found, expected) << i;
    ASSERT_EQ(store.tokens(), tokens);
    ASSERT_EQ(store.tenants(), tenants);
    if (i > 20) {
      ASSERT_GT(tokens, room / 3);  // no more is dropped than must be
    }
  }
}

}  // namespace
}  // namespace kvasir
