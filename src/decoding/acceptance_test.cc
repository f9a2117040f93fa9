#include "decoding/acceptance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace kvasir {
namespace {

TEST(Acceptance, StartsAtEvenOdds) {
  const Acceptance a;
  EXPECT_DOUBLE_EQ(a.rate(0, 0), 0.5);
  EXPECT_DOUBLE_EQ(a.rate(7, 15), 0.5);
}

// As if four guesses had been seen.
TEST(Acceptance, StartsWithWhatIsExpected) {
  DraftChances expected;
  expected[2] = {.first = 0.75, .later = 0.9};
  Acceptance a(expected);
  EXPECT_DOUBLE_EQ(a.rate(2, 0), 0.75);
  EXPECT_DOUBLE_EQ(a.rate(2, 1), 0.9);
  EXPECT_DOUBLE_EQ(a.rate(2, 15), 0.9);
  EXPECT_DOUBLE_EQ(a.rate(1, 0), 0.5);
  a.count(2, 0, false);
  EXPECT_DOUBLE_EQ(a.rate(2, 0), 3.0 / 5);
  a.count(2, 1, false);
  EXPECT_DOUBLE_EQ(a.rate(2, 1), 3.6 / 5);
  EXPECT_DOUBLE_EQ(a.rate(2, 9), 3.6 / 5);  // as those before it
  a.count(2, 9, true);
  EXPECT_DOUBLE_EQ(a.rate(2, 9), (1 + 4 * 0.72) / 5);
  EXPECT_DOUBLE_EQ(a.rate(2, 1), 3.6 / 5);
}

TEST(Acceptance, ClassesAndPlacesAreLearntApart) {
  Acceptance a;
  for (int i = 0; i < 100; ++i) {
    a.count(3, 0, true);
    a.count(3, 1, false);
    a.count(4, 0, i % 2 == 0);
  }
  EXPECT_GT(a.rate(3, 0), 0.95);
  EXPECT_LT(a.rate(3, 1), 0.05);
  EXPECT_NEAR(a.rate(4, 0), 0.5, 0.02);
  EXPECT_DOUBLE_EQ(a.rate(5, 0), 0.5);
}

TEST(Acceptance, ForgetsHalfInItsHalfLife) {
  Acceptance a;
  for (int i = 0; i < 5000; ++i) a.count(0, 0, true);
  for (int i = 0; i < Acceptance::kHalfLife; ++i) a.count(0, 0, false);
  EXPECT_NEAR(a.rate(0, 0), 0.5, 0.01);
}

TEST(Acceptance, NoRateIsCertain) {
  Acceptance a;
  for (int i = 0; i < 100000; ++i) {
    a.count(0, 0, true);
    a.count(1, 0, false);
  }
  EXPECT_LT(a.rate(0, 0), 1);
  EXPECT_GT(a.rate(1, 0), 0);
}

TEST(SequenceAcceptance, FollowsTheSequenceAwayFromWhatIsExpected) {
  SequenceAcceptance s;
  EXPECT_DOUBLE_EQ(s.rate(0.3), 0.3);
  for (int i = 0; i < 200; ++i) s.count(0.3, true);
  EXPECT_GT(s.rate(0.3), 0.8);
  for (int i = 0; i < 400; ++i) s.count(0.3, false);
  EXPECT_LT(s.rate(0.3), 0.1);
}

TEST(SequenceAcceptance, StaysWhereTheExpectationIsRight) {
  SequenceAcceptance s;
  std::mt19937 rng(1);
  for (int i = 0; i < 2000; ++i) s.count(0.7, rng() % 10 < 7);
  EXPECT_NEAR(s.rate(0.7), 0.7, 0.15);
}

// One guess, by hand: the precision becomes 0.6 + p (1 - p), and the shift (right - p) over it.
TEST(SequenceAcceptance, ASurpriseSaysMore) {
  SequenceAcceptance sure, unsure;
  sure.count(0.95, false);
  EXPECT_NEAR(sure.rate(0.95), 1 / (1 + std::exp(0.95 / (0.6 + 0.0475)) / 19), 1e-12);  // 0.81
  unsure.count(0.5, false);
  EXPECT_NEAR(unsure.rate(0.5), 1 / (1 + std::exp(0.5 / (0.6 + 0.25))), 1e-12);  // 0.36
  sure.count(0.95, false);
  sure.count(0.95, false);
  EXPECT_LT(sure.rate(0.95), 0.5);
}

Draft draft_of(std::initializer_list<TokenId> tokens) {
  Draft d;
  for (const TokenId t : tokens) d.add(t);
  return d;
}

// A draft may be borne out over several steps, a token each.
TEST(DraftCheck, ComparesUntilTheFirstWrongGuess) {
  Acceptance a;
  SequenceAcceptance s;
  DraftCheck check;
  check.start(draft_of({5, 6, 7, 8}));
  check.compare(5, a, s);
  check.compare(6, a, s);
  EXPECT_TRUE(check.open());
  check.compare(9, a, s);
  EXPECT_FALSE(check.open());
  check.compare(8, a, s);  // not counted
  EXPECT_DOUBLE_EQ(a.rate(0, 0), 0.6);
  EXPECT_DOUBLE_EQ(a.rate(0, 1), 0.6);
  EXPECT_DOUBLE_EQ(a.rate(0, 2), (4 * 0.6) / 5);
  EXPECT_DOUBLE_EQ(a.rate(0, 3), a.rate(0, 2));
}

TEST(Acceptance, GradesFollowTheLeadAndAreLearnt) {
  EXPECT_EQ(grade_of(0.1f), 0);
  EXPECT_EQ(grade_of(0.25f), 1);
  EXPECT_EQ(grade_of(1.2f), 3);
  EXPECT_EQ(grade_of(1e9f), 7);
  Acceptance a;
  EXPECT_DOUBLE_EQ(a.grade_rate(7), 0.98);
  for (int i = 0; i < 4; ++i) a.count_grade(7, false);
  EXPECT_NEAR(a.grade_rate(7), 4 * 0.98 / 8, 0.01);
  EXPECT_DOUBLE_EQ(a.grade_rate(6), 0.96);
}

// 0.9 and 0.9 * 0.5 are reached, against 0.6.
TEST(DraftStop, EndsWhereTheChainIsTooUnsure) {
  DraftStop stop;
  stop.right[2] = 0.5;
  stop.right[6] = 0.9;
  stop.least = 0.6;
  Draft draft;
  EXPECT_FALSE(stop.ends(draft));
  draft.add(4, 6);
  EXPECT_FALSE(stop.ends(draft));
  draft.add(4, 2);
  EXPECT_TRUE(stop.ends(draft));
  EXPECT_FALSE(stop.ends(draft_of({4, 5}))) << "not graded";
}

// A place counts where the guess before it was right and the drafter might have given up.
TEST(DraftCheck, CountsWhereADraftWentOn) {
  Acceptance a;
  SequenceAcceptance s;
  DraftCheck check;
  Draft draft;
  draft.add(5, 7);
  draft.add(6, 7);
  draft.gave_up = true;
  check.start(draft);
  EXPECT_DOUBLE_EQ(a.going_on(1), 1);
  check.compare(5, a, s);
  EXPECT_DOUBLE_EQ(a.going_on(1), 1);
  check.compare(6, a, s);
  EXPECT_DOUBLE_EQ(a.going_on(2), 0.5);
  EXPECT_GT(a.grade_rate(7), 0.98);
  draft.gave_up = false;
  check.start(draft);
  check.compare(5, a, s);
  check.compare(6, a, s);
  EXPECT_DOUBLE_EQ(a.going_on(2), 0.5) << "as many as were wanted: says nothing";
}

}  // namespace
}  // namespace kvasir
