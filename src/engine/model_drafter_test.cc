// A model that drafts for another: whatever it is, answers are those without it; what it has computed it does
// not compute again, and what it guessed wrongly leaves no trace.

#include "engine/model_drafter.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "engine/core_rig.h"

namespace kvasir {
namespace {

constexpr uint32_t kVocab = 48;

struct DraftModelOptions {
  FakeLm::Options model;
  uint32_t blocks = 400;
  uint32_t slots = 16;
  CausalLm::Limits limits = {.max_rows = 64, .max_logit_rows = 64};
  uint32_t head_tokens = 0;
  bool prefix_caching = true;
};

// A drafter over a fake model that the test can look at.
struct Drafting {
  std::shared_ptr<FakeLm> model;
  std::unique_ptr<ModelDrafter> drafter;
};

Drafting make_drafting(const DraftModelOptions& o, ThreadPool& pool) {
  auto model = std::make_shared<FakeLm>(o.model);
  const KvLayout layout = KvLayout::make(model->config().kv_layers(), 16).value();
  const ModelDrafter::Options options = {
      .slots = o.slots,
      .blocks = o.blocks,
      .prefix_caching = o.prefix_caching,
      .hash_seed = 5,
      .batch = {.limits = o.limits, .vocab = kVocab, .head_tokens = o.head_tokens, .layers = {}},
      .end_tokens = {0}};
  return {model, std::make_unique<ModelDrafter>(model, layout, pool, options)};
}

// Runs requests with this drafter always on; returns what it did. Answers are checked.
struct Outcome {
  DrafterStats stats;
  uint64_t steps = 0, refusals = 0, faults = 0;
};

Outcome run(RigOptions rig_options, const DraftModelOptions& draft, const std::vector<Request>& requests) {
  ThreadPool pool(2);
  Drafting drafting;
  ModelDrafter* drafter = nullptr;
  rig_options.speculation.always = true;
  rig_options.drafters = [&] {
    drafting = make_drafting(draft, pool);
    drafter = drafting.drafter.get();
    std::vector<std::unique_ptr<Drafter>> list;
    list.push_back(std::move(drafting.drafter));
    return list;
  };
  CoreRig rig(rig_options);
  std::vector<uint64_t> ids;
  for (const Request& r : requests) ids.push_back(rig.add(r));
  rig.run();
  for (size_t i = 0; i < requests.size(); ++i) rig.expect_right(ids[i], requests[i]);
  EXPECT_EQ(drafter->blocks().owned(), 0u);
  EXPECT_TRUE(drafter->blocks().check_integrity().ok());
  return {rig.core->update_stats().speculation.drafters[0], rig.model.steps, drafter->refusals(),
          drafting.model->faults};
}

Request long_request(uint32_t text, uint32_t tokens, float temperature = 0) {
  Request r = fake_request(fake_prompt(40, text), tokens, temperature, text + 3);
  r.sampling.ignore_eos = true;
  return r;
}

TEST(ModelDrafter, AnswersDoNotDependOnTheModelThatDrafts) {
  for (int kind = 0; kind < 3; ++kind) {
    std::mt19937 rng(static_cast<uint32_t>(kind) + 70);
    std::vector<Request> requests;
    for (int i = 0; i < 14; ++i) requests.push_back(random_request(rng, 120));
    RigOptions rig;
    rig.model.windows = kinds_of_model(kind);
    rig.blocks = 600;
    for (const uint32_t astray : {0u, 30u, 100u}) {
      for (const uint32_t most : {1u, 3u, 8u}) {
        for (const uint32_t blocks : {600u, 25u}) {
          SCOPED_TRACE(testing::Message() << "kind " << kind << ", " << astray << " % astray, " << most
                                          << " guesses, " << blocks << " blocks");
          rig.speculation.most = most;
          rig.max_num_batched_tokens = most == 3 ? 17 : 64;
          DraftModelOptions draft{.model = rig.model, .blocks = blocks};
          draft.model.astray = astray;
          draft.limits.max_rows = most == 8 ? 13 : 64;
          draft.limits.max_logit_rows = most == 8 ? 5 : 64;
          draft.prefix_caching = most != 3;
          const Outcome outcome = run(rig, draft, requests);
          EXPECT_EQ(outcome.faults, 0u) << "the draft model read a slot that was not written for it";
          EXPECT_GT(outcome.stats.drafts, 0u);
          if (astray == 100) {
            // Half of the answers are drawn: the same noise makes even strangers agree now and then.
            EXPECT_LT(outcome.stats.accepted * 3, outcome.stats.drafted * 2);
          }
        }
      }
    }
  }
}

// A target that runs out of blocks: sequences come, go and come back.
TEST(ModelDrafter, SurvivesPreemption) {
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 5; ++i) requests.push_back(long_request(i, 70));
  RigOptions rig;
  rig.blocks = 2 * 12;
  rig.max_model_len = 150;
  const Outcome outcome = run(rig, {.model = rig.model}, requests);
  EXPECT_EQ(outcome.faults, 0u);
  EXPECT_EQ(outcome.stats.accepted, outcome.stats.drafted);
}

TEST(ModelDrafter, TheTargetItselfIsAlwaysRight) {
  for (const float temperature : {0.0f, 0.9f}) {
    const std::vector<Request> requests = {long_request(0, 121, temperature),
                                           long_request(1, 121, temperature)};
    RigOptions rig;
    rig.speculation.most = 5;
    const Outcome outcome = run(rig, {.model = rig.model}, requests);
    EXPECT_EQ(outcome.stats.accepted, outcome.stats.drafted) << "temperature " << temperature;
    EXPECT_EQ(outcome.stats.whole, outcome.stats.drafts);
    EXPECT_EQ(outcome.steps, 2u + 20u);  // each prompt, then six tokens a step for both
  }
}

TEST(ModelDrafter, DraftsNothingWithoutRoom) {
  const std::vector<Request> requests = {long_request(0, 80)};
  RigOptions rig;
  const Outcome outcome = run(rig, {.model = rig.model, .blocks = 2}, requests);
  EXPECT_GT(outcome.refusals, 0u);
  EXPECT_EQ(outcome.stats.drafts, 0u);
}

TEST(ModelDrafter, StopsAtItsOwnContext) {
  const std::vector<Request> requests = {long_request(0, 80)};
  RigOptions rig;
  DraftModelOptions draft{.model = rig.model};
  draft.model.context = 64;
  const Outcome outcome = run(rig, draft, requests);
  EXPECT_EQ(outcome.stats.accepted, outcome.stats.drafted);
  EXPECT_GT(outcome.stats.drafted, 15u);
  EXPECT_LT(outcome.stats.drafted, 25u);  // those of positions 41 to 63
}

// Driven by hand.
class Alone : public testing::Test {
 protected:
  Alone() { start({}); }

  void start(const DraftModelOptions& options) {
    drafting_ = make_drafting(options, pool_);
    SamplingParams greedy;
    greedy.temperature = 0;
    greedy.ignore_eos = true;
    sampler_ =
        std::make_unique<Sampler>(greedy, 0, kVocab, std::vector<TokenId>{0}, kernel_table(best_isa()));
  }

  Draft ask(uint32_t slot, const std::vector<TokenId>& known, uint32_t most, bool trial = false,
            const DraftStop* stop = nullptr) {
    Draft draft;
    DraftJob job{.slot = slot,
                 .known = known,
                 .most = most,
                 .sampler = sampler_.get(),
                 .tables = {},
                 .cache_salt = {},
                 .trial = trial,
                 .stop = stop,
                 .draft = &draft};
    const uint64_t rows = drafting_.model->rows;
    drafting_.drafter->propose({&job, 1});
    rows_ = drafting_.model->rows - rows;
    return draft;
  }

  // What a drafter that has seen nothing else guesses.
  Draft fresh(const std::vector<TokenId>& known, uint32_t most) {
    Drafting other = make_drafting({}, pool_);
    std::swap(other, drafting_);
    drafting_.drafter->open(0, 512);
    Draft draft;
    while (draft.size == 0) draft = ask(0, known, most);
    drafting_.drafter->close(0);
    std::swap(other, drafting_);
    return draft;
  }

  static void expect_same(const Draft& a, const Draft& b) {
    EXPECT_TRUE(std::ranges::equal(a.list(), b.list()));
  }

  ThreadPool pool_{2};
  Drafting drafting_;
  std::unique_ptr<Sampler> sampler_;
  uint64_t rows_ = 0;  // computed for the last question
};

TEST_F(Alone, ReadsWhatIsMissingAndNoMore) {
  drafting_.drafter->open(3, 512);
  std::vector<TokenId> known = fake_prompt(30, 1);
  Draft draft = ask(3, known, 4);
  ASSERT_EQ(draft.size, 4u);
  EXPECT_EQ(rows_, 30u + 3u);
  // All right, and a token behind them: the fourth guess and that token have no K and V yet.
  known.insert(known.end(), draft.tokens.begin(), draft.tokens.begin() + 4);
  known.push_back(7);
  draft = ask(3, known, 4);
  EXPECT_EQ(rows_, 2u + 3u);
  expect_same(draft, fresh(known, 4));
  // Two right: the third guess's place is computed again.
  known.insert(known.end(), draft.tokens.begin(), draft.tokens.begin() + 2);
  known.push_back(static_cast<TokenId>((draft.tokens[2] + 1) % kVocab));
  draft = ask(3, known, 4);
  EXPECT_EQ(rows_, 1u + 3u);
  expect_same(draft, fresh(known, 4));
  // None right; then tokens that nobody asked guesses for.
  known.push_back(static_cast<TokenId>((draft.tokens[0] + 1) % kVocab));
  known.insert(known.end(), {4, 5, 6});
  draft = ask(3, known, 2);
  EXPECT_EQ(rows_, 4u + 1u);
  expect_same(draft, fresh(known, 2));
  drafting_.drafter->close(3);
  EXPECT_EQ(drafting_.model->faults, 0u);
}

// However sure the guesses are, what they rest on is worth no pass beyond the second.
TEST_F(Alone, GivesUpWhereGuessesAreTooUnsure) {
  drafting_.drafter->open(0, 512);
  const std::vector<TokenId> known = fake_prompt(30, 1);
  DraftStop stop;
  stop.right.fill(0.7);
  stop.least = 0.6;
  const Draft draft = ask(0, known, 4, false, &stop);
  EXPECT_EQ(draft.size, 2u);
  EXPECT_TRUE(draft.graded && draft.gave_up);
  EXPECT_EQ(rows_, 30u + 1u);
  const Draft all = fresh(known, 4);
  EXPECT_TRUE(std::equal(draft.tokens.begin(), draft.tokens.begin() + 2, all.tokens.begin()));
  EXPECT_FALSE(all.gave_up);
  drafting_.drafter->close(0);
}

TEST_F(Alone, CatchesUpInPieces) {
  DraftModelOptions options;
  options.prefix_caching = false;
  start(options);
  drafting_.drafter->open(0, 512);
  const std::vector<TokenId> known = fake_prompt(200, 2);
  EXPECT_EQ(ask(0, known, 3).size, 0u);
  EXPECT_EQ(rows_, ModelDrafter::kCatchUpRows);
  EXPECT_EQ(ask(0, known, 3).size, 0u);
  EXPECT_EQ(ask(0, known, 3).size, 0u);
  const Draft draft = ask(0, known, 3);
  EXPECT_EQ(rows_, 200u - 3 * ModelDrafter::kCatchUpRows + 2u);
  expect_same(draft, fresh(known, 3));
  drafting_.drafter->close(0);
}

TEST_F(Alone, ATrialReadsTheLastTokensOnlyAndLeavesNothing) {
  drafting_.drafter->open(0, 512);
  std::vector<TokenId> known = fake_prompt(200, 2);
  EXPECT_EQ(ask(0, known, 2, true).size, 2u);
  EXPECT_EQ(rows_, ModelDrafter::kTrialRows + 1u);
  ask(0, known, 2);
  ask(0, known, 2);
  ask(0, known, 2);
  const Draft draft = ask(0, known, 2);
  expect_same(draft, fresh(known, 2));
  for (TokenId t = 1; t < 40; ++t) known.push_back(t);
  ask(0, known, 2, true);
  EXPECT_EQ(rows_, ModelDrafter::kTrialRows + 1u);
  expect_same(ask(0, known, 4), fresh(known, 4));
  drafting_.drafter->close(0);
  EXPECT_EQ(drafting_.drafter->blocks().owned(), 0u);
}

TEST_F(Alone, ASecondSequenceFindsThePrefixOfTheFirst) {
  const std::vector<TokenId> known = fake_prompt(50, 3);
  drafting_.drafter->open(0, 512);
  ask(0, known, 1);
  drafting_.drafter->open(1, 512);
  const Draft draft = ask(1, known, 3);
  EXPECT_EQ(rows_, 2u + 2u);  // 48 are in full blocks
  expect_same(draft, fresh(known, 3));
  drafting_.drafter->close(0);
  drafting_.drafter->close(1);
}

TEST_F(Alone, GuessesOnlyTokensOfTheTrimmedHead) {
  DraftModelOptions options;
  options.head_tokens = 8;
  start(options);
  drafting_.drafter->open(0, 512);
  const Draft draft = ask(0, fake_prompt(20, 1), 8);
  EXPECT_EQ(draft.size, 8u);
  for (const TokenId token : draft.list()) EXPECT_LT(token, 8);
  drafting_.drafter->close(0);
}

TEST_F(Alone, GuessesNothingBehindATokenItLacks) {
  DraftModelOptions options;
  options.model.vocab = kVocab - 10;
  start(options);
  drafting_.drafter->open(0, 512);
  std::vector<TokenId> known = fake_prompt(20, 1, 0, kVocab - 10);
  EXPECT_EQ(ask(0, known, 3).size, 3u);
  known.push_back(kVocab - 10);
  EXPECT_EQ(ask(0, known, 3).size, 0u);
  known.push_back(1);
  EXPECT_EQ(ask(0, known, 3).size, 0u);
  EXPECT_EQ(rows_, 0u);
  drafting_.drafter->close(0);
}

// Vocabularies that are padded: more ids than the target has are never guessed, fewer do no harm.
TEST_F(Alone, GuessesOnlyTokensThatTheTargetHas) {
  for (const uint32_t vocab : {kVocab + 20, kVocab - 10}) {
    DraftModelOptions options;
    options.model.vocab = vocab;
    for (const float temperature : {0.0f, 1.0f}) {
      start(options);
      SamplingParams params;
      params.temperature = temperature;
      params.ignore_eos = true;
      sampler_ =
          std::make_unique<Sampler>(params, 0, kVocab, std::vector<TokenId>{0}, kernel_table(best_isa()));
      drafting_.drafter->open(0, 512);
      for (uint32_t text = 0; text < 5; ++text) {
        const Draft draft = ask(0, fake_prompt(20, text, 0, std::min(vocab, kVocab)), 8);
        EXPECT_EQ(draft.size, 8u);
        for (const TokenId token : draft.list())
          EXPECT_LT(static_cast<uint32_t>(token), std::min(vocab, kVocab));
        drafting_.drafter->close(0);
        drafting_.drafter->open(0, 512);
      }
      drafting_.drafter->close(0);
    }
  }
}

}  // namespace
}  // namespace kvasir
