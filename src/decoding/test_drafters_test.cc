#include "decoding/test_drafters.h"

#include <gtest/gtest.h>

#include <array>
#include <set>

#include "decoding/drafter_rig.h"

namespace kvasir::testing_drafters {
namespace {

constexpr uint32_t kVocab = 50;

std::vector<Tokens> texts() {
  std::vector<Tokens> both(2);
  for (TokenId i = 0; i < 4000; ++i) {
    both[0].push_back(i * i % 50);
    both[1].push_back(i * 7 % 43);
  }
  return both;
}

const Tokens& text(uint32_t slot) {
  static const std::vector<Tokens> kTexts = texts();
  return kTexts.at(slot);
}

std::span<const TokenId> known(uint32_t slot, size_t size) {
  return {text(slot).data(), size};
}

TEST(TestDrafters, TheOracleIsRightAndEndsWithItsText) {
  OracleDrafter oracle(continuation_of(texts()));
  EXPECT_EQ(drafted(oracle, 0, known(0, 5), 4), (Tokens{25, 36, 49, 14}));
  EXPECT_EQ(drafted(oracle, 1, known(1, 0), 3), (Tokens{0, 7, 14}));
  EXPECT_EQ(drafted(oracle, 0, known(0, 3998), 4), (Tokens{text(0)[3998], text(0)[3999]}));
  EXPECT_EQ(drafted(oracle, 0, known(0, 5), 0), Tokens{});
}

TEST(TestDrafters, TheAdversaryIsNeverRightAndAlwaysFull) {
  for (const uint32_t vocab : {kVocab, 2u}) {
    const Tokens bits = {0, 1, 1, 0, 1, 0, 0, 0, 1, 1, 1, 0};
    AdversarialDrafter drafter(continuation_of(vocab == 2 ? std::vector<Tokens>{bits} : texts()), vocab);
    const Tokens& right = vocab == 2 ? bits : text(0);
    for (size_t size = 0; size < 12; ++size) {
      const Tokens draft = drafted(drafter, 0, {right.data(), size}, 8);
      ASSERT_EQ(draft.size(), 8u);
      for (size_t i = 0; i < 8; ++i) {
        ASSERT_GE(draft[i], 0);
        ASSERT_LT(draft[i], static_cast<TokenId>(vocab));
        if (size + i < right.size()) {
          ASSERT_NE(draft[i], right[size + i]);
        }
      }
    }
  }
}

TEST(TestDrafters, DraftsDependOnTheSeedAndThePlaceOnly) {
  RandomDrafter random(kVocab, 3), other_seed(kVocab, 4);
  std::set<Tokens> seen;
  bool differs = false;
  std::array<bool, 9> lengths{};
  for (size_t size = 0; size < 300; ++size) {
    const Tokens draft = drafted(random, 0, known(0, size), 8);
    EXPECT_EQ(drafted(random, 0, known(0, size), 8), draft);
    differs |= drafted(other_seed, 0, known(0, size), 8) != draft;
    differs |= drafted(random, 1, known(1, size), 8) != draft;
    lengths.at(draft.size()) = true;
    seen.insert(draft);
    for (const TokenId token : draft) ASSERT_TRUE(token >= 0 && token < static_cast<TokenId>(kVocab));
  }
  EXPECT_TRUE(differs);
  EXPECT_GT(seen.size(), 200u);
  for (const bool length : lengths) EXPECT_TRUE(length);
}

TEST(TestDrafters, TheReplayIsRightAtEveryLength) {
  ReplayDrafter replay(continuation_of(texts()));
  std::array<bool, 9> lengths{};
  for (size_t size = 0; size < 300; ++size) {
    const Tokens draft = drafted(replay, 1, known(1, size), 8);
    for (size_t i = 0; i < draft.size(); ++i) ASSERT_EQ(draft[i], text(1)[size + i]);
    lengths.at(draft.size()) = true;
  }
  for (const bool length : lengths) EXPECT_TRUE(length);
}

TEST(TestDrafters, TheFixedRateIsKeptAtEveryPosition) {
  for (const double rate : {0.0, 0.3, 0.8, 1.0}) {
    FixedRateDrafter drafter(continuation_of(texts()), rate, kVocab);
    constexpr size_t kDrafts = 3000;
    std::array<size_t, 4> right{};
    for (size_t size = 0; size < kDrafts; ++size) {
      const Tokens draft = drafted(drafter, 0, known(0, size), 4);
      ASSERT_EQ(draft.size(), 4u);
      for (size_t i = 0; i < 4; ++i) right[i] += draft[i] == text(0)[size + i];
    }
    // Four standard deviations of 3000 draws are at most 0.0366.
    for (const size_t count : right)
      EXPECT_NEAR(static_cast<double>(count) / kDrafts, rate, rate == 0 || rate == 1 ? 0 : 0.0366);
  }
}

}  // namespace
}  // namespace kvasir::testing_drafters
