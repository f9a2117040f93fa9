// Drafts change how many steps an answer takes and nothing else, whoever guesses and however well.

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "engine/core_rig.h"

namespace kvasir {
namespace {

// Knows all answers. In each place of a draft it tells the right token with a chance of `right`, and else
// another.
class Prophet final : public Drafter {
 public:
  struct Options {
    double right = 1;
    size_t right_from = 0;  // before this position it is never right
    bool free = true;
    bool random_length = false;
    uint32_t vocab = 48;
  };
  Prophet(const Options& options, std::vector<std::vector<TokenId>> texts)
      : options_(options), texts_(std::move(texts)) {}

  std::string_view name() const override { return "prophet"; }
  void open(uint32_t slot, uint32_t) override { EXPECT_TRUE(open_.insert(slot).second); }
  void close(uint32_t slot) override { EXPECT_EQ(open_.erase(slot), 1u); }
  bool is_free() const override { return options_.free; }
  double seconds(uint32_t, uint32_t) const override { return 0; }

  void propose(std::span<DraftJob> jobs) override {
    for (DraftJob& job : jobs) {
      EXPECT_TRUE(open_.contains(job.slot));
      const uint32_t most = options_.random_length ? rng_() % (job.most + 1) : job.most;
      const std::vector<TokenId>* text = text_of(job.known);
      for (uint32_t i = 0; i < most; ++i) {
        const size_t at = job.known.size() + i;
        const bool known = text != nullptr && at < text->size();
        const bool tell =
            known && at >= options_.right_from && static_cast<double>(rng_() % 1000) < 1000 * options_.right;
        const TokenId right = known ? (*text)[at] : 0;
        job.draft->add(tell ? right
                            : static_cast<TokenId>((right + 1 + static_cast<TokenId>(rng_() % 3)) %
                                                   static_cast<TokenId>(options_.vocab)));
      }
    }
  }

 private:
  const std::vector<TokenId>* text_of(std::span<const TokenId> known) const {
    for (const std::vector<TokenId>& text : texts_) {
      if (text.size() > known.size() && std::equal(known.begin(), known.end(), text.begin())) return &text;
    }
    return nullptr;
  }

  Options options_;
  std::vector<std::vector<TokenId>> texts_;
  std::set<uint32_t> open_;
  std::mt19937 rng_{1};
};

std::vector<std::vector<TokenId>> all_texts(const RigOptions& options, const std::vector<Request>& requests) {
  const FakeTokenizer tokenizer(options.model.vocab);
  std::vector<std::vector<TokenId>> texts;
  for (const Request& r : requests) {
    for (uint32_t c = 0; c < r.n; ++c) {
      const Expected e = expected_answer(r, c, options.model, tokenizer, options.max_model_len);
      texts.push_back(r.prompt);
      texts.back().insert(texts.back().end(), e.tokens.begin(), e.tokens.end());
    }
  }
  return texts;
}

void with_prophet(RigOptions& options, const std::vector<Request>& requests, const Prophet::Options& how) {
  options.speculation.always = true;
  options.drafters = [texts = all_texts(options, requests), how] {
    std::vector<std::unique_ptr<Drafter>> list;
    list.push_back(std::make_unique<Prophet>(how, texts));
    return list;
  };
}

uint64_t steps_of(const RigOptions& options, const std::vector<Request>& requests) {
  CoreRig rig(options);
  std::vector<uint64_t> ids;
  for (const Request& r : requests) ids.push_back(rig.add(r));
  rig.run();
  for (size_t i = 0; i < requests.size(); ++i) rig.expect_right(ids[i], requests[i]);
  EXPECT_EQ(rig.core->update_stats().blocks_used, 0u);
  return rig.model.steps;
}

TEST(Speculation, AnswersDoNotDependOnDrafts) {
  for (int kind = 0; kind < 3; ++kind) {
    std::mt19937 rng(static_cast<uint32_t>(kind) + 20);
    std::vector<Request> requests;
    for (int i = 0; i < 16; ++i) requests.push_back(random_request(rng, 120));
    RigOptions base;
    base.model.windows = kinds_of_model(kind);
    base.blocks = 600;
    for (const double right : {1.0, 0.8, 0.3, 0.0}) {
      for (const uint32_t most : {1u, 2u, 3u, 8u, 16u}) {
        for (const bool free : {true, false}) {
          SCOPED_TRACE(testing::Message() << "kind " << kind << ", right " << right << ", " << most
                                          << " guesses, " << (free ? "free" : "asked late"));
          RigOptions options = base;
          options.speculation.most = most;
          options.prefix_caching = most != 3;
          options.max_num_batched_tokens = most == 2 ? 17 : 64;
          with_prophet(options, requests, {.right = right, .free = free, .random_length = most == 8});
          steps_of(options, requests);
          options.max_model_len = 170;
          options.blocks =
              KvLayout::make(FakeLm(options.model).config().kv_layers(), 16).value().blocks_for(170) + 3;
          with_prophet(options, requests, {.right = right, .free = free, .random_length = most == 8});
          steps_of(options, requests);
        }
      }
    }
  }
}

Request long_request(uint32_t text, uint32_t tokens) {
  Request r = fake_request(fake_prompt(40, text), tokens);
  r.sampling.ignore_eos = true;
  return r;
}

TEST(Speculation, RightGuessesSaveSteps) {
  const std::vector<Request> requests = {long_request(0, 120)};
  RigOptions options;
  const uint64_t plain = steps_of(options, requests);
  EXPECT_EQ(plain, 120u);
  options.speculation.most = 5;
  with_prophet(options, requests, {});
  EXPECT_EQ(steps_of(options, requests), 1 + (119 + 5) / 6);  // six tokens a step, after the prompt's own
}

TEST(Speculation, WrongGuessesTakeNoMoreSteps) {
  const std::vector<Request> requests = {long_request(0, 100), long_request(1, 100)};
  RigOptions options;
  const uint64_t plain = steps_of(options, requests);
  with_prophet(options, requests, {.right = 0});
  EXPECT_EQ(steps_of(options, requests), plain);
}

TEST(Speculation, CountsWhatWasGuessedAndWhatCameTrue) {
  const std::vector<Request> requests = {long_request(0, 61)};
  RigOptions options;
  options.speculation.most = 3;
  with_prophet(options, requests, {});
  CoreRig rig(options);
  rig.add(requests[0]);
  rig.run();
  const EngineStats::Speculation& s = rig.core->update_stats().speculation;
  ASSERT_EQ(s.drafters.size(), 1u);
  EXPECT_EQ(s.drafters[0].drafts, 15u);  // 60 tokens after the prompt's, four a step
  EXPECT_EQ(s.drafters[0].drafted, 45u);
  EXPECT_EQ(s.drafters[0].accepted, 45u);
  EXPECT_EQ(s.drafters[0].accepted_at[0], 15u);
  EXPECT_EQ(s.drafters[0].accepted_at[2], 15u);
  EXPECT_EQ(s.drafters[0].accepted_at[3], 0u);
}

TEST(Speculation, ARequestMayRefuseDrafts) {
  std::vector<Request> requests = {long_request(0, 50)};
  requests[0].drafters = 0;
  RigOptions options;
  with_prophet(options, requests, {});
  EXPECT_EQ(steps_of(options, requests), 50u);
}

// An answer that ends inside a draft, by its end token, a stop token, a stop string or its length, ends there
// though what is guessed behind is what the model would have said: no token of it is in the answer, the
// counts, or the cache.
TEST(Speculation, AnEndInsideADraftIsTheEnd) {
  uint32_t inside = 0;
  for (uint32_t i = 0; i < 24; ++i) {
    Request endless = long_request(i, 120);
    endless.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    Request asked = endless;
    asked.sampling.ignore_eos = i % 4 != 0;
    if (i % 4 == 1) asked.sampling.stop_token_ids = {5, 17, 30};
    if (i % 4 == 2) asked.stop = {"ab", "x", "f"};
    if (i % 4 == 3) asked.sampling.max_tokens = 11 + i;
    RigOptions options;
    options.speculation.most = 8;
    with_prophet(options, {endless}, {});
    CoreRig rig(options);
    const uint64_t id = rig.add(asked);
    rig.run();
    rig.expect_right(id, asked);
    const CoreRig::Answer answer = rig.answers[{id, 0}];
    const DrafterStats& stats = rig.core->update_stats().speculation.drafters[0];
    EXPECT_LT(stats.accepted, answer.output_tokens);
    inside += stats.accepted < stats.drafted ? 1 : 0;
    // Whoever goes on from the endless answer finds what was computed of this one, and no more.
    const uint64_t next = rig.add(fake_request(all_texts(options, {endless})[0], 1));
    rig.run();
    EXPECT_LE((rig.answers[{next, 0}].cached_tokens), asked.prompt.size() + answer.output_tokens);
  }
  EXPECT_GT(inside, 10u) << "few ends fell inside a draft";
}

// A guess never drives anybody out of the pool: with room for one token more each, there is no preemption
// that a run without drafts would not have had.
TEST(Speculation, NobodyGivesWayToAGuess) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 4; ++i) requests.push_back(long_request(i, 60));
  RigOptions options;
  options.prefix_caching = false;
  options.blocks = 2 * 4 * 7;  // exactly 100 tokens for each
  options.max_model_len = 100;
  options.speculation.most = 16;
  with_prophet(options, requests, {.right = 0.5});
  CoreRig rig(options);
  for (const Request& r : requests) rig.add(r);
  rig.run();
  EXPECT_EQ(rig.core->update_stats().preemptions, 0u);
}

// Where steps are predicted and nothing is ever right, rows are soon no longer spent on guesses.
TEST(Speculation, StopsWhereGuessesFail) {
  const std::vector<Request> requests = {long_request(0, 400)};
  RigOptions options;
  options.predict = true;
  with_prophet(options, requests, {.right = 0});
  options.speculation.always = false;
  CoreRig rig(options);
  rig.add(requests[0]);
  rig.run();
  const EngineStats::Speculation& s = rig.core->update_stats().speculation;
  EXPECT_LT(s.drafters[0].drafted, 60u);
  EXPECT_GT(s.without_draft[static_cast<size_t>(NoDraft::kNoGain)], 300u);
}

// By rejection, greedy answers are the same and sampled ones as long and as sound, if not the same.
TEST(Speculation, RejectionLeavesGreedyAnswersAlone) {
  std::vector<Request> requests = {long_request(0, 80), long_request(1, 80)};
  RigOptions options;
  options.speculation.accept = SpeculationConfig::Accept::kRejection;
  with_prophet(options, requests, {.right = 0.6});
  options.speculation.always = true;
  steps_of(options, requests);
  requests[1].sampling.temperature = 0.9f;
  CoreRig rig(options);
  const uint64_t first = rig.add(requests[0]);
  const uint64_t second = rig.add(requests[1]);
  rig.run();
  rig.expect_right(first, requests[0]);
  EXPECT_EQ((rig.answers[{second, 0}].tokens.size()), 80u);
  EXPECT_EQ(rig.core->update_stats().blocks_used, 0u);
}

// What costs something is not asked for ever when it fails; but tried again, and then found to have become
// right.
TEST(Speculation, ADrafterThatFailedIsTriedAgain) {
  const std::vector<Request> requests = {long_request(0, 1200)};
  RigOptions options;
  options.predict = true;
  options.max_model_len = 1400;
  with_prophet(options, requests, {.right = 1, .right_from = 240, .free = false});
  options.speculation.always = false;
  CoreRig rig(options);
  rig.add(requests[0]);
  uint64_t before = 0;
  while (rig.core->has_work()) {
    rig.step();
    const auto& running = rig.core->scheduler().running();
    if (!running.empty() && running.front()->known() < 240)
      before = rig.core->update_stats().speculation.drafters[0].drafted;
  }
  rig.expect_right(1, requests[0]);
  const EngineStats::Speculation& s = rig.core->update_stats().speculation;
  EXPECT_LT(before, 80u);
  EXPECT_GT(s.drafters[0].accepted, 200u);
  EXPECT_GT(s.drafters[0].off[static_cast<size_t>(NoDraft::kNoGain)], 100u);
  EXPECT_EQ(s.drafters[0].off[static_cast<size_t>(NoDraft::kOutbid)], 0u);
}

// Of two, the better one is chosen, and the other is told why it is not.
TEST(Speculation, TheBetterDrafterIsChosen) {
  const std::vector<Request> requests = {long_request(0, 400)};
  RigOptions options;
  options.predict = true;
  options.drafters = [texts = all_texts(options, requests)] {
    std::vector<std::unique_ptr<Drafter>> list;
    list.push_back(std::make_unique<Prophet>(Prophet::Options{.right = 0.3}, texts));
    list.push_back(std::make_unique<Prophet>(Prophet::Options{.right = 0.95}, texts));
    return list;
  };
  CoreRig rig(options);
  const uint64_t id = rig.add(requests[0]);
  rig.run();
  rig.expect_right(id, requests[0]);
  const EngineStats::Speculation& s = rig.core->update_stats().speculation;
  EXPECT_GT(s.drafters[1].accepted, 10 * s.drafters[0].accepted);
  EXPECT_GT(s.drafters[0].off[static_cast<size_t>(NoDraft::kOutbid)], 10u);
}

TEST(Speculation, CancelledWithADraftLeavesNothing) {
  const std::vector<Request> requests = {long_request(0, 300), long_request(1, 300)};
  RigOptions options;
  with_prophet(options, requests, {.right = 0.7});
  CoreRig rig(options);
  const uint64_t first = rig.add(requests[0]);
  const uint64_t second = rig.add(requests[1]);
  for (int i = 0; i < 20; ++i) rig.step();
  rig.core->cancel(RequestId{first});
  rig.check();
  rig.run();
  rig.expect_right(second, requests[1]);
  EXPECT_EQ(rig.core->update_stats().blocks_used, 0u);
}

}  // namespace
}  // namespace kvasir
