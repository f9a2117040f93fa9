// What holds for every drafter that reads nothing but tokens.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <random>
#include <string>

#include "decoding/drafter_rig.h"
#include "decoding/ngram_drafter.h"
#include "decoding/suffix_drafter.h"

namespace {

thread_local size_t allocations = 0;

}  // namespace

#ifndef KVASIR_DEBUG_CHECKS  // the sanitizers have their own
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* p = std::malloc(bytes == 0 ? 1 : bytes)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept {
  std::free(p);
}
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept {
  std::free(p);
}
#endif

namespace kvasir {
namespace {

struct Kind {
  std::string name;
  std::function<std::unique_ptr<Drafter>(uint32_t slots)> make;
};

std::vector<Kind> kinds() {
  return {{"ngram", [](uint32_t slots) { return std::make_unique<NgramDrafter>(slots); }},
          {"suffix", [](uint32_t slots) { return std::make_unique<SuffixDrafter>(slots); }},
          {"outputs", [](uint32_t slots) {
             return std::make_unique<SuffixDrafter>(slots, SuffixOptions{.shared_bytes = size_t{1} << 16});
           }}};
}

class DraftersTest : public testing::TestWithParam<Kind> {
 protected:
  std::unique_ptr<Drafter> make(uint32_t slots = 1, uint32_t max_tokens = 4096) const {
    auto drafter = GetParam().make(slots);
    for (uint32_t slot = 0; slot < slots; ++slot) drafter->open(slot, max_tokens);
    return drafter;
  }
};

// Text of few words, so that much of it recurs.
Tokens babble(uint32_t seed, size_t size, uint32_t words = 12) {
  std::mt19937 random(seed);
  std::vector<Tokens> lexicon(words);
  for (Tokens& word : lexicon)
    for (uint32_t n = 1 + random() % 5; n > 0; --n) word.push_back(static_cast<TokenId>(random() % 40));
  Tokens text;
  while (text.size() < size) {
    const Tokens& word = lexicon[random() % words];
    text.insert(text.end(), word.begin(), word.end());
  }
  text.resize(size);
  return text;
}

TEST_P(DraftersTest, SaysNothingOfTextThatDoesNotRecur) {
  auto drafter = make();
  Tokens known;
  EXPECT_EQ(drafted(*drafter, 0, known, 8), Tokens{});
  for (TokenId token = 0; token < 100; ++token) {
    known.push_back(token);
    EXPECT_EQ(drafted(*drafter, 0, known, 8), Tokens{}) << token;
  }
}

TEST_P(DraftersTest, CopiesWhatItHasSeen) {
  auto drafter = make();
  Tokens known;
  for (TokenId token = 100; token < 160; ++token) known.push_back(token);
  for (TokenId token = 110; token < 118; ++token) known.push_back(token);
  EXPECT_EQ(drafted(*drafter, 0, known, 5), (Tokens{118, 119, 120, 121, 122}));
  EXPECT_EQ(drafted(*drafter, 0, known, 1), (Tokens{118}));
  EXPECT_EQ(drafted(*drafter, 0, known, 0), Tokens{});
}

TEST_P(DraftersTest, GoesRoundLoopsOfAnyPeriodToFullLength) {
  for (uint32_t period = 1; period <= 20; ++period) {
    auto drafter = make();
    Tokens known;
    for (uint32_t i = 0; i < 3 * period + 11; ++i) known.push_back(static_cast<TokenId>(50 + i % period));
    Tokens expected;
    for (uint32_t i = 0; i < Draft::kMost; ++i)
      expected.push_back(static_cast<TokenId>(50 + (known.size() + i) % period));
    EXPECT_EQ(drafted(*drafter, 0, known, Draft::kMost), expected) << period;
  }
}

TEST_P(DraftersTest, TakesTokensAtTheEdgesOfAnyVocabulary) {
  auto drafter = make();
  const TokenId last = std::numeric_limits<TokenId>::max();
  const Tokens known = {last, 0, last - 1, 1, last, 0, last, 0, last - 1, 1, last, 0};
  EXPECT_EQ(drafted(*drafter, 0, known, 3), (Tokens{last, 0, last - 1}));
}

TEST_P(DraftersTest, GrowthAcrossCallsEqualsOneCall) {
  for (uint32_t seed = 0; seed < 6; ++seed) {
    const Tokens text = babble(seed, 500);
    auto step = make(), jump = make();
    std::mt19937 random(seed);
    for (size_t size = 0; size <= text.size(); ++size) {
      const std::span<const TokenId> known(text.data(), size);
      const Draft one = draft_for(*step, 0, known, 8);
      if (random() % 7 != 0) continue;
      const Draft other = draft_for(*jump, 0, known, 8);
      auto fresh = make();
      const Draft third = draft_for(*fresh, 0, known, 8);
      ASSERT_EQ(one.tokens, other.tokens) << size;
      ASSERT_EQ(one.size, other.size) << size;
      ASSERT_EQ(one.evidence, other.evidence) << size;
      ASSERT_EQ(one.tokens, third.tokens) << size;
      ASSERT_EQ(one.size, third.size) << size;
    }
  }
}

TEST_P(DraftersTest, AskingAgainChangesNothing) {
  const Tokens text = babble(77, 300);
  auto drafter = make();
  const Draft first = draft_for(*drafter, 0, text, 8);
  for (uint32_t most = 0; most <= Draft::kMost; ++most) {
    const Tokens again = drafted(*drafter, 0, text, most);
    ASSERT_LE(again.size(), most);
    for (size_t i = 0; i < std::min<size_t>(again.size(), first.size); ++i)
      ASSERT_EQ(again[i], first.tokens[i]) << most;
  }
}

TEST_P(DraftersTest, SlotsDoNotSeeEachOther) {
  constexpr uint32_t kSlots = 9;
  auto many = make(kSlots);
  std::vector<std::unique_ptr<Drafter>> alone;
  std::vector<Tokens> texts;
  for (uint32_t slot = 0; slot < kSlots; ++slot) {
    alone.push_back(make());
    texts.push_back(babble(slot, 200));
  }
  for (size_t size = 1; size <= 200; ++size) {
    std::array<Draft, kSlots> drafts;
    std::vector<DraftJob> jobs;
    for (uint32_t slot = 0; slot < kSlots; ++slot)
      if ((size + slot) % 3 != 0)
        jobs.push_back({.slot = slot,
                        .known = {texts[slot].data(), size},
                        .most = 6,

                        .draft = &drafts[slot]});
    std::reverse(jobs.begin(), jobs.end());
    many->propose(jobs);
    for (const DraftJob& job : jobs) {
      const Draft expected = draft_for(*alone[job.slot], 0, job.known, 6);
      ASSERT_EQ(job.draft->tokens, expected.tokens) << job.slot << " " << size;
      ASSERT_EQ(job.draft->size, expected.size);
      ASSERT_EQ(job.draft->evidence, expected.evidence);
    }
  }
}

TEST_P(DraftersTest, ASlotStartsAnewWhenItIsOpenedAgain) {
  auto drafter = make(2);
  Tokens old;
  for (TokenId token = 0; token < 50; ++token) old.push_back(token);
  EXPECT_EQ(drafted(*drafter, 1, old, 8), Tokens{});
  drafter->close(1);
  drafter->open(1, 64);
  EXPECT_EQ(drafted(*drafter, 1, Tokens{10, 11, 12, 13, 14}, 8), Tokens{});
  EXPECT_EQ(drafted(*drafter, 1, Tokens{10, 11, 12, 13, 14, 10, 11, 12}, 2), (Tokens{13, 14}));
}

TEST_P(DraftersTest, EvidenceIsInRangeAndDraftsNoLongerThanWanted) {
  for (uint32_t seed = 0; seed < 20; ++seed) {
    const Tokens text = babble(seed, 300, 3 + seed);
    auto drafter = make();
    for (size_t size = 1; size <= text.size(); ++size) {
      const uint32_t most = static_cast<uint32_t>((seed + size) % (Draft::kMost + 1));
      const Draft draft = draft_for(*drafter, 0, {text.data(), size}, most);
      ASSERT_LE(draft.size, most);
      ASSERT_LT(draft.evidence, Draft::kEvidences);
      for (const TokenId token : draft.list())
        ASSERT_NE(std::find(text.begin(), text.end(), token), text.end());
    }
  }
}

TEST_P(DraftersTest, ProposingAllocatesNothing) {
#ifdef KVASIR_DEBUG_CHECKS
  GTEST_SKIP() << "the sanitizers count allocations themselves";
#endif
  const Tokens text = babble(5, 4096, 40);
  auto drafter = make(2);
  Draft draft;
  const std::string salt(200, 's');
  const size_t before = allocations;
  for (size_t size = 0; size <= text.size(); size += 1 + size / 50) {
    DraftJob job{.slot = 1, .known = {text.data(), size}, .most = Draft::kMost, .draft = &draft};
    job.output_tokens = static_cast<uint32_t>(size / 2);
    job.cache_salt = salt;
    drafter->propose({&job, 1});
  }
  EXPECT_EQ(allocations, before);
  const Tokens copy = text;  // the count does count
  EXPECT_GT(allocations, before) << copy.size();
}

INSTANTIATE_TEST_SUITE_P(All, DraftersTest, testing::ValuesIn(kinds()),
                         [](const auto& kind) { return kind.param.name; });

}  // namespace
}  // namespace kvasir
