#include "decoding/continuation_vote.h"

#include <gtest/gtest.h>

#include <vector>

namespace kvasir {
namespace {

using Tokens = std::vector<TokenId>;

// Voters over texts that end there.
struct Votes {
  std::vector<Tokens> texts;
  std::vector<float> weights;
  bool runs_on = false;

  Tokens draft(const VoteRule& rule, uint32_t most, VoteResult* result = nullptr) const {
    std::vector<Voter> voters;
    for (size_t i = 0; i < texts.size(); ++i)
      voters.push_back({.next = texts[i].data(),
                        .end = texts[i].data() + texts[i].size(),
                        .weight = i < weights.size() ? weights[i] : 1,
                        .runs_on = runs_on});
    Draft draft;
    const VoteResult r = vote_continuation(voters, rule, most, draft);
    if (result != nullptr) *result = r;
    return {draft.list().begin(), draft.list().end()};
  }
};

TEST(ContinuationVote, FollowsTheMajorityAndThenThoseWhoWereInIt) {
  const Votes votes{.texts = {{1, 5, 9}, {2, 7, 7}, {1, 6, 8}, {1, 6, 4}, {2, 7, 7}}, .weights = {}};
  VoteResult result;
  EXPECT_EQ(votes.draft({}, 3, &result), (Tokens{1, 6, 8}));
  EXPECT_FLOAT_EQ(result.first_share, 0.6f);
}

TEST(ContinuationVote, WeighsVotes) {
  EXPECT_EQ((Votes{.texts = {{1}, {2}, {2}}, .weights = {3, 1, 1}}).draft({}, 1), (Tokens{1}));
  EXPECT_EQ((Votes{.texts = {{1}, {2}, {2}}, .weights = {3, 2, 2}}).draft({}, 1), (Tokens{2}));
  EXPECT_EQ((Votes{.texts = {{1}, {2}, {2}}, .weights = {4, 2, 2}}).draft({}, 1),
            (Tokens{1}));  // the first of equals
}

TEST(ContinuationVote, StopsAtTheBoundsOfShareAndPath) {
  const Votes votes{.texts = {{1, 2, 3}, {1, 2, 4}, {1, 5, 6}}, .weights = {}};  // shares 1, 2/3, 1/2
  EXPECT_EQ(votes.draft({.min_share = 0.5f}, 8), (Tokens{1, 2, 3}));
  EXPECT_EQ(votes.draft({.min_share = 0.6f}, 8), (Tokens{1, 2}));
  EXPECT_EQ(votes.draft({.min_share = 0.7f}, 8), (Tokens{1}));
  EXPECT_EQ(votes.draft({.min_path = 0.33f}, 8), (Tokens{1, 2, 3}));  // 1/3
  EXPECT_EQ(votes.draft({.min_path = 0.34f}, 8), (Tokens{1, 2}));
  EXPECT_EQ(votes.draft({.min_path = 0.33f}, 2), (Tokens{1, 2}));
}

TEST(ContinuationVote, DoubtTakesItsShareAndDecays) {
  const Votes votes{.texts = {{1, 2, 3}}, .weights = {}};
  VoteResult result;
  // Shares 1/2, 2/3, 4/5: paths 1/2, 1/3, 4/15.
  EXPECT_EQ(votes.draft({.min_path = 0.3f, .doubt = 1, .doubt_decay = 0.5f}, 8, &result), (Tokens{1, 2}));
  EXPECT_FLOAT_EQ(result.first_share, 0.5f);
  EXPECT_EQ(votes.draft({.min_path = 0.26f, .doubt = 1, .doubt_decay = 0.5f}, 8), (Tokens{1, 2, 3}));
  EXPECT_EQ(votes.draft({.min_share = 0.6f, .doubt = 1}, 8, &result), Tokens{});
  EXPECT_FLOAT_EQ(result.first_share, 0.5f);
}

TEST(ContinuationVote, RunsOnInTheDraftOrEnds) {
  Votes votes{.texts = {{1, 2}}, .weights = {}};
  EXPECT_EQ(votes.draft({}, 5), (Tokens{1, 2}));
  votes.runs_on = true;
  EXPECT_EQ(votes.draft({}, 5), (Tokens{1, 2, 1, 2, 1}));
  EXPECT_EQ((Votes{.texts = {{1, kNoToken, 3}}, .weights = {}}).draft({}, 5), (Tokens{1}));
  VoteResult result;
  EXPECT_EQ(Votes{}.draft({}, 5, &result), Tokens{});
  EXPECT_EQ(result.first_share, 0);
}

}  // namespace
}  // namespace kvasir
