#include "engine/engine_core.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/core_rig.h"

namespace kvasir {
namespace {

// The same requests in every circumstance give the same answers: those that the model gives without an
// engine.
void expect_equal_in(RigOptions options, const std::vector<Request>& requests, bool one_by_one) {
  CoreRig rig(options);
  std::vector<uint64_t> ids;
  for (const Request& r : requests) {
    ids.push_back(rig.add(r));
    if (one_by_one) rig.run();
  }
  rig.run();
  for (size_t i = 0; i < requests.size(); ++i) rig.expect_right(ids[i], requests[i]);
}

TEST(EngineCore, AnswersDoNotDependOnCompanyChunksCacheOrPreemption) {
  for (int kind = 0; kind < 3; ++kind) {
    std::mt19937 rng(static_cast<uint32_t>(kind));
    std::vector<Request> requests;
    for (int i = 0; i < 16; ++i) requests.push_back(random_request(rng, 150));
    RigOptions base;
    base.model.windows = kinds_of_model(kind);
    base.blocks = 600;
    for (const bool caching : {true, false}) {
      base.prefix_caching = caching;
      for (const uint32_t budget : {1u, 7u, 64u, 1000u}) {
        SCOPED_TRACE(testing::Message() << "kind " << kind << " caching " << caching << " budget " << budget);
        RigOptions options = base;
        options.max_num_batched_tokens = budget;
        expect_equal_in(options, requests, budget == 64);
        expect_equal_in(options, requests, false);
        options.max_model_len = 220;
        options.blocks =
            KvLayout::make(FakeLm(options.model).config().kv_layers(), 16).value().blocks_for(220) + 3;
        expect_equal_in(options, requests, false);
      }
    }
  }
}

TEST(EngineCore, TinyPoolFinishesEightLongRequests) {
  RigOptions options;
  options.blocks = 32;  // 512 tokens
  options.max_num_seqs = 8;
  CoreRig rig(options);
  std::vector<Request> requests;
  std::vector<uint64_t> ids;
  for (uint32_t i = 0; i < 8; ++i) {
    Request r = fake_request(fake_prompt(60, i), 300, 0.8f, i);
    r.sampling.ignore_eos = true;
    requests.push_back(r);
    ids.push_back(rig.add(r));
  }
  rig.run();
  for (size_t i = 0; i < 8; ++i) rig.expect_right(ids[i], requests[i]);
  EXPECT_GT(rig.core->update_stats().preemptions, 0u);
  EXPECT_EQ(rig.core->update_stats().blocks_used, 0u);
}

// Pool for one and a half requests, four requests: nobody is admitted and thrown out again without end.
TEST(EngineCore, PreemptionDoesNotThrash) {
  RigOptions options;
  options.blocks = 30;
  options.prefix_caching = false;
  options.max_num_seqs = 4;
  CoreRig rig(options);
  for (uint32_t i = 0; i < 4; ++i) {
    Request r = fake_request(fake_prompt(200, i), 100);
    r.sampling.ignore_eos = true;
    rig.add(r);
  }
  rig.run();
  const EngineStats stats = rig.core->update_stats();
  EXPECT_LE(stats.preemptions, 8u);
  EXPECT_LE(stats.computed_tokens, 2u * 4 * 300);
}

TEST(EngineCore, ThousandRandomRequestsWithCancelsLeaveThePoolWhole) {
  for (int kind = 0; kind < 3; ++kind) {
    std::mt19937 rng(static_cast<uint32_t>(kind) + 10);
    RigOptions options;
    options.model.windows = kinds_of_model(kind);
    options.blocks =
        KvLayout::make(FakeLm(options.model).config().kv_layers(), 16).value().blocks_for(300) * 2;
    options.max_num_batched_tokens = 96;
    options.max_model_len = 300;
    CoreRig rig(options);
    std::map<uint64_t, Request> requests;
    std::map<uint64_t, bool> cancelled;
    while ((requests.size() < 1000 || rig.core->has_work()) && !testing::Test::HasFatalFailure()) {
      if (requests.size() < 1000 && rng() % 3 != 0) {
        Request r = random_request(rng, 60);
        const uint64_t id = rig.add(r);
        requests[id] = std::move(r);
      }
      if (rng() % 8 == 0 && !requests.empty()) {
        const uint64_t id = 1 + rng() % requests.size();
        cancelled[id] = true;
        rig.core->cancel(RequestId{id});
        rig.check();
      }
      if (rig.core->has_work()) rig.step();
    }
    for (const auto& [id, r] : requests) {
      if (!cancelled.count(id)) {
        rig.expect_right(id, r);
        continue;
      }
      for (uint32_t c = 0; c < r.n; ++c) {
        const CoreRig::Answer& a = rig.answers[{id, c}];
        ASSERT_NE(a.finish, FinishReason::kNone) << "a cancelled choice never ended";
        const Expected e = expected_answer(r, c, options.model, rig.tokenizer, 300);
        ASSERT_LE(a.tokens.size(), e.tokens.size());
        EXPECT_TRUE(std::equal(a.tokens.begin(), a.tokens.end(), e.tokens.begin()));
      }
    }
    EXPECT_EQ(rig.core->requests_held(), 0u);
    EXPECT_EQ(rig.core->requests_started(), 1000u);
    EXPECT_EQ(rig.core->requests_ended(), 1000u);
    const EngineStats stats = rig.core->update_stats();
    EXPECT_EQ(stats.blocks_used, 0u);
    EXPECT_EQ(stats.blocks_free + stats.blocks_cached, stats.blocks_total);
  }
}

TEST(EngineCore, CancelInEveryPhaseFreesAtOnce) {
  // 0: waiting, 1: amid the prompt, 2: prompt read, 3..: generating; n = 3.
  for (uint32_t steps = 0; steps < 12; ++steps) {
    RigOptions options;
    options.max_num_batched_tokens = 32;
    CoreRig rig(options);
    Request r = fake_request(fake_prompt(100, 1), 60, 1.0f);
    r.sampling.ignore_eos = true;
    r.n = 3;
    const Request other = fake_request(fake_prompt(30, 2), 40);
    const uint64_t id = rig.add(r);
    const uint64_t kept = rig.add(other);
    for (uint32_t i = 0; i < steps; ++i) rig.step();
    rig.core->cancel(RequestId{id});
    rig.core->cancel(RequestId{id});    // a second time
    rig.core->cancel(RequestId{9999});  // unknown
    rig.check();
    for (uint32_t c = 0; c < 3; ++c)
      EXPECT_EQ((rig.answers[{id, c}].finish), FinishReason::kCancelled) << steps;
    for (const Sequence* s : rig.core->scheduler().running()) EXPECT_EQ(s->age.first, kept);
    rig.run();
    rig.expect_right(kept, other);
  }
}

// A long prompt does not stop the streams beside it: each gets its token in every step.
TEST(EngineCore, DecodesNeverWaitForAPrompt) {
  RigOptions options;
  options.max_num_batched_tokens = 32;
  options.max_model_len = 2000;
  CoreRig rig(options);
  std::vector<uint64_t> ids;
  for (uint32_t i = 0; i < 6; ++i) {
    Request r = fake_request(fake_prompt(8, i), 25);
    r.sampling.ignore_eos = true;
    ids.push_back(rig.add(r));
  }
  rig.step();
  rig.step();
  rig.add(fake_request(fake_prompt(1500, 9), 4));
  std::map<uint64_t, size_t> before;
  const uint64_t rows = rig.model.rows;
  for (int step = 0; step < 20; ++step) {
    for (const uint64_t id : ids) before[id] = rig.answers[{id, 0}].tokens.size();
    rig.step();
    for (const uint64_t id : ids) EXPECT_EQ((rig.answers[{id, 0}].tokens.size()), before[id] + 1);
  }
  EXPECT_EQ(rig.model.rows - rows, 20u * 32) << "the prompt has the rest of the budget";
}

TEST(EngineCore, UnsoundLogitsEndThatRequestOnly) {
  RigOptions options;
  options.model.poison = 7;
  CoreRig rig(options);
  Request bad = fake_request({3, 4, 7}, 10);
  bad.n = 2;
  Request bad_score = fake_request({7, 4, 5}, 10);
  bad_score.prompt_logprobs = 0;
  Request good = fake_request({3, 4, 5}, 10);
  good.sampling.allowed_tokens = std::vector<TokenId>{8, 9, 10};
  const uint64_t a = rig.add(bad), b = rig.add(good), c = rig.add(bad_score);
  rig.run();
  EXPECT_EQ((rig.answers[{a, 0}].finish), FinishReason::kError);
  EXPECT_EQ((rig.answers[{a, 1}].finish), FinishReason::kError);
  EXPECT_EQ((rig.answers[{a, 0}].error.code()), ErrorCode::kInternal);
  EXPECT_EQ((rig.answers[{c, 0}].finish), FinishReason::kError);
  rig.expect_right(b, good);
  EXPECT_EQ(rig.core->update_stats().finished_error, 3u);
}

TEST(EngineCore, PromptLogprobsAreComputedAfreshInAnyChunks) {
  std::vector<float> first;
  for (const uint32_t budget : {1u, 7u, 64u, 500u}) {
    RigOptions options;
    options.max_num_batched_tokens = budget;
    options.blocks = 40;
    CoreRig rig(options);
    const std::vector<TokenId> prompt = fake_prompt(150, 3);
    rig.add(fake_request(prompt, 5));
    rig.run();  // now the prompt is cached
    std::vector<SampledToken> scores;
    int calls = 0;
    Request r = fake_request(prompt, 5);
    r.n = 2;
    r.prompt_logprobs = 2;
    r.prompt_logprobs_sink = [&](std::vector<SampledToken>&& s) {
      scores = std::move(s);
      ++calls;
    };
    // Beside others that will make it lose its blocks.
    Request noise = fake_request(fake_prompt(200, 5), 200);
    noise.sampling.ignore_eos = true;
    rig.add(noise);
    const uint64_t id = rig.add(r);
    rig.run();
    rig.expect_right(id, r);
    EXPECT_EQ((rig.answers[{id, 0}].cached_tokens), 0u);
    ASSERT_EQ(calls, 1);
    ASSERT_EQ(scores.size(), 149u);
    std::vector<float> values;
    for (size_t i = 0; i < scores.size(); ++i) {
      EXPECT_EQ(scores[i].token, prompt[i + 1]);
      ASSERT_EQ(scores[i].top.size(), 2u);
      EXPECT_GE(scores[i].top[0].logprob, scores[i].logprob);
      values.push_back(scores[i].logprob);
    }
    if (first.empty()) first = values;
    EXPECT_EQ(values, first);
  }
}

TEST(EngineCore, ScoringOnlyGeneratesNothing) {
  CoreRig rig;
  Request r = fake_request({5}, 0);
  r.prompt_logprobs = 0;
  int calls = 0;
  r.prompt_logprobs_sink = [&](std::vector<SampledToken>&& s) {
    EXPECT_TRUE(s.empty());
    ++calls;
  };
  const uint64_t id = rig.add(r);
  rig.run();
  EXPECT_EQ(calls, 1);
  EXPECT_EQ((rig.answers[{id, 0}].finish), FinishReason::kLength);
  EXPECT_EQ((rig.answers[{id, 0}].tokens.size()), 0u);
}

TEST(EngineCore, WasteIsTheLastBlocksOnly) {
  CoreRig rig;
  rig.add(fake_request(fake_prompt(33, 1), 5));
  rig.step();
  EXPECT_DOUBLE_EQ(rig.core->update_stats().kv_waste, 15.0 / 48);
  rig.run();
  EXPECT_EQ(rig.core->update_stats().kv_waste, 0.0);
}

// Predictions change the schedule, and no answer.
TEST(EngineCore, AnswersDoNotDependOnPredictions) {
  std::mt19937 rng(5);
  std::vector<Request> requests;
  for (int i = 0; i < 12; ++i) requests.push_back(random_request(rng, 150));
  for (const double gap : {0.0, 1e-9, 1e-5, 10.0}) {
    SCOPED_TRACE(gap);
    RigOptions options;
    options.predict = true;
    options.max_itl_seconds = gap;
    expect_equal_in(options, requests, false);
    options.blocks = 40;  // with preemptions
    expect_equal_in(options, requests, false);
  }
}

TEST(EngineCore, CountsWhatWasPredictedAndMeasured) {
  RigOptions options;
  options.predict = true;
  CoreRig rig(options);
  rig.add(fake_request(fake_prompt(100, 1), 40));
  rig.run();
  const EngineStats& stats = rig.core->update_stats();
  EXPECT_EQ(stats.forecast.steps, stats.steps);
  EXPECT_GT(stats.steps, 0u);
  EXPECT_GT(stats.forecast.predicted_seconds, 0);
  EXPECT_DOUBLE_EQ(stats.forecast.measured_seconds, stats.step_seconds);
  uint64_t counted = 0;
  for (const uint64_t n : stats.forecast.error.counts) counted += n;
  EXPECT_EQ(counted, stats.steps);
  EXPECT_GT(stats.forecast.recent.count, 0u);
}

TEST(EngineCore, WithoutAPerfModelNothingIsPredicted) {
  CoreRig rig;
  rig.add(fake_request(fake_prompt(10, 1), 4));
  rig.run();
  EXPECT_EQ(rig.core->update_stats().forecast.steps, 0u);
}

}  // namespace
}  // namespace kvasir
