// What sequences share: prompts of choices, prefixes of requests, earlier turns.

#include <gtest/gtest.h>

#include "engine/core_rig.h"

namespace kvasir {
namespace {

TEST(PrefixSharing, ChoicesShareTheComputedPrompt) {
  CoreRig rig;
  Request r = fake_request(fake_prompt(200, 1), 20, 1.0f, 5);
  r.sampling.ignore_eos = true;
  r.n = 5;
  const uint64_t id = rig.add(r);
  while (rig.core->scheduler().running().size() < 5) rig.step();
  // 12 whole blocks shared, the tail shared until it is written.
  EXPECT_EQ(rig.core->update_stats().blocks_used, 13u);
  rig.step();
  EXPECT_EQ(rig.core->update_stats().blocks_used, 12u + 5);
  rig.run();
  rig.expect_right(id, r);
  EXPECT_EQ(rig.model.rows, 200u + 5 * 19);
  r.n = 1;
  const uint64_t alone = rig.add(r);
  rig.run();
  EXPECT_EQ((rig.answers[{alone, 0}].tokens), (rig.answers[{id, 0}].tokens));
}

TEST(PrefixSharing, RequestsThatArriveTogetherShareAPrefixWhileItIsComputed) {
  RigOptions options;
  options.max_num_batched_tokens = 256;
  options.blocks = 600;
  options.max_model_len = 2000;
  CoreRig rig(options);
  std::vector<Request> requests;
  std::vector<uint64_t> ids;
  for (uint32_t i = 0; i < 16; ++i) {
    Request r = fake_request(fake_prompt(1024 + 64, i, 1024), 32);
    r.sampling.ignore_eos = true;
    requests.push_back(r);
    ids.push_back(rig.add(r));
  }
  rig.run();
  for (size_t i = 0; i < ids.size(); ++i) rig.expect_right(ids[i], requests[i]);
  const uint64_t generated = 16 * 31;  // the last token of an answer is not computed
  EXPECT_EQ(rig.model.rows - generated, 1024u + 16 * 64);
  EXPECT_EQ((rig.answers[{ids[15], 0}].cached_tokens), 1024u);
}

TEST(PrefixSharing, FollowersGoOnWhenTheirLeaderIsCancelled) {
  RigOptions options;
  options.max_num_batched_tokens = 32;
  CoreRig rig(options);
  const Request a = fake_request(fake_prompt(300, 1, 290), 5);
  const Request b = fake_request(fake_prompt(300, 2, 290), 5);
  const uint64_t leader = rig.add(a);
  const uint64_t follower = rig.add(b);
  rig.step();
  rig.step();
  ASSERT_EQ(rig.core->scheduler().waiting().size(), 1u);
  rig.core->cancel(RequestId{leader});
  rig.run();
  rig.expect_right(follower, b);
  EXPECT_EQ((rig.answers[{follower, 0}].cached_tokens), 64u);  // what the leader had computed
}

TEST(PrefixSharing, NextTurnReusesPromptAndAnswer) {
  CoreRig rig;
  Request r = fake_request(fake_prompt(100, 1), 60);
  r.sampling.ignore_eos = true;
  const uint64_t id = rig.add(r);
  rig.run();
  EXPECT_EQ((rig.answers[{id, 0}].cached_tokens), 0u);
  std::vector<TokenId> turn = r.prompt;
  const std::vector<TokenId>& said = rig.answers[{id, 0}].tokens;
  turn.insert(turn.end(), said.begin(), said.end());
  turn.push_back(3);
  const Request next = fake_request(turn, 10);
  const uint64_t second = rig.add(next);
  rig.run();
  EXPECT_EQ((rig.answers[{second, 0}].cached_tokens), 144u);  // 159 computed tokens: nine whole blocks
  rig.expect_right(second, next);

  // A retry finds all but its last token, and says so.
  const uint64_t retry = rig.add(fake_request(fake_prompt(96, 1), 4));
  rig.run();
  EXPECT_EQ((rig.answers[{retry, 0}].cached_tokens), 95u);
  EXPECT_EQ((rig.answers[{retry, 0}].prompt_tokens), 96u);
}

TEST(PrefixSharing, SlidingWindowModelHitsInTheNextTurn) {
  RigOptions options;
  options.model.windows = {24, 24, 0};
  CoreRig rig(options);
  Request r = fake_request(fake_prompt(200, 1), 30);
  r.sampling.ignore_eos = true;
  const uint64_t id = rig.add(r);
  rig.run();
  std::vector<TokenId> turn = r.prompt;
  const std::vector<TokenId>& said = rig.answers[{id, 0}].tokens;
  turn.insert(turn.end(), said.begin(), said.end());
  const Request next = fake_request(turn, 10);
  const uint64_t second = rig.add(next);
  rig.run();
  EXPECT_EQ((rig.answers[{second, 0}].cached_tokens), 224u);
  rig.expect_right(second, next);
}

// More agents than slots, whose prompts begin with the same tenth: each finds its own last turn, whoever ran
// where in between.
TEST(PrefixSharing, AgentsFindTheirTurnsThoughThereAreFewerSlots) {
  constexpr uint32_t kAgents = 5, kTurns = 3;
  RigOptions options;
  options.max_num_seqs = kAgents - 1;
  options.blocks = 600;
  options.max_model_len = 1000;
  CoreRig rig(options);
  std::vector<std::vector<TokenId>> texts;
  for (uint32_t a = 0; a < kAgents; ++a) texts.push_back(fake_prompt(330, a, 33));
  for (uint32_t turn = 0; turn < kTurns; ++turn) {
    std::vector<Request> requests;
    std::vector<uint64_t> ids;
    for (uint32_t i = 0; i < kAgents; ++i) {
      requests.push_back(fake_request(texts[(i + turn) % kAgents], 30, 0.6f, turn));
      requests.back().sampling.ignore_eos = true;
      ids.push_back(rig.add(requests.back()));
    }
    rig.run();
    for (uint32_t i = 0; i < kAgents; ++i) {
      rig.expect_right(ids[i], requests[i]);
      const CoreRig::Answer& answer = rig.answers[{ids[i], 0}];
      // Of the turn before, all that was computed: the last token of an answer is not.
      const uint32_t before = 330 + (turn - 1) * 32 + 30 - 1;
      if (turn > 0) {
        EXPECT_EQ(answer.cached_tokens, before / 16 * 16) << "agent " << i << ", turn " << turn;
      }
      std::vector<TokenId>& text = texts[(i + turn) % kAgents];
      text.insert(text.end(), answer.tokens.begin(), answer.tokens.end());
      text.insert(text.end(), {3, 4});
    }
  }
}

// A client that lost its connection asks again: what was computed before is not computed again.
TEST(PrefixSharing, ARetryGoesOnWhereTheCancelledOneStopped) {
  for (const std::vector<uint32_t>& windows : {std::vector<uint32_t>{0, 0}, {24, 24, 0}}) {
    RigOptions options;
    options.model.windows = windows;
    CoreRig rig(options);
    Request r = fake_request(fake_prompt(300, 1), 60);
    r.sampling.ignore_eos = true;
    uint64_t id = rig.add(r);
    for (int i = 0; i < 3; ++i) rig.step();  // 64 rows each
    rig.core->cancel(RequestId{id});
    EXPECT_EQ((rig.answers[{id, 0}].finish), FinishReason::kCancelled);
    EXPECT_EQ(rig.core->update_stats().blocks_used, 0u);

    id = rig.add(r);
    uint64_t before = rig.model.rows;
    while ((rig.answers[{id, 0}].output_tokens) < 40) rig.step();
    EXPECT_EQ((rig.answers[{id, 0}].cached_tokens), 192u);
    EXPECT_EQ(rig.model.rows - before, 300u - 192 + 39);
    rig.core->cancel(RequestId{id});

    id = rig.add(r);
    before = rig.model.rows;
    rig.run();
    EXPECT_EQ((rig.answers[{id, 0}].cached_tokens), 288u) << "300 tokens: eighteen whole blocks";
    EXPECT_EQ(rig.model.rows - before, 300u - 288 + 59);
    rig.expect_right(id, r);
    const EngineStats& stats = rig.core->update_stats();
    EXPECT_EQ(stats.prefix_queries, 900u);
    EXPECT_EQ(stats.prefix_hits, 192u + 288);
  }
}

// What is counted and told is what was served at first; to be computed again after a preemption is no hit.
TEST(PrefixSharing, PreemptionDoesNotCountAsAHit) {
  RigOptions options;
  options.blocks = 18;
  options.max_model_len = 200;
  CoreRig rig(options);
  std::vector<uint64_t> ids;
  for (uint32_t i = 0; i < 4; ++i) {
    Request r = fake_request(fake_prompt(60, i), 90, 0.8f, i);
    r.sampling.ignore_eos = true;
    ids.push_back(rig.add(r));
  }
  rig.run();
  const EngineStats& stats = rig.core->update_stats();
  EXPECT_GT(stats.preemptions, 0u);
  EXPECT_EQ(stats.prefix_queries, 240u);
  EXPECT_EQ(stats.prefix_hits, 0u);
  for (const uint64_t id : ids) EXPECT_EQ((rig.answers[{id, 0}].cached_tokens), 0u);
}

// Another user's request in between changes nothing, whether anything is cached or not.
TEST(PrefixSharing, ARequestLeavesNoTraceInTheNext) {
  for (const bool caching : {true, false}) {
    RigOptions options;
    options.prefix_caching = caching;
    options.blocks = 12;
    options.max_model_len = 150;
    CoreRig rig(options);
    const Request a = fake_request(fake_prompt(90, 1), 40, 0.7f, 3), b = fake_request(fake_prompt(90, 2), 40);
    for (const Request* r : {&a, &b, &a}) {
      const uint64_t id = rig.add(*r);
      rig.run();
      rig.expect_right(id, *r);
    }
  }
}

}  // namespace
}  // namespace kvasir
