// Medusa and EAGLE heads as drafters: what they guess depends on the text and the target's hidden states
// alone, not on when they are asked, what else was shown, or who is asked beside.

#include <gtest/gtest.h>

#include <numeric>

#include "decoding/sampler.h"
#include "engine/eagle_drafter.h"
#include "engine/medusa_drafter.h"
#include "models/heads_rig.h"

namespace kvasir {
namespace {

constexpr uint32_t kWidth = 32, kVocab = 70;
constexpr uint32_t kPoints[] = {0, 1, HiddenTap::kOutputNorm};

std::vector<TokenId> all_tokens() {
  std::vector<TokenId> ids(kVocab);
  std::iota(ids.begin(), ids.end(), 0);
  return ids;
}

OwnMatrix random_matrix(uint32_t n, uint32_t k, std::mt19937& rng, bool f16 = false) {
  const TestMatrix m(n, k, rng);
  return f16 ? OwnMatrix::f16(m.values, n, k) : m.packed();
}

EagleWeights eagle_weights(const CausalLm& target) {
  std::mt19937 rng(21);
  EagleWeights w;
  w.fuses_layers = true;
  ModelConfig& c = w.config;
  c.layers = 1;
  c.hidden_dim = c.ffn_dim = kWidth;
  c.vocab_size = kVocab;
  c.heads = 2;
  c.kv_heads = 1;
  c.head_dim = c.rope_dim = 16;
  c.context_length = 512;
  c.windows = {0};
  c.ropes = {LayerRope::kGlobal};
  c.rope_kind = RopeKind::kNeox;
  c.attention_scale = 0.25f;
  w.points = {std::begin(kPoints), std::end(kPoints)};
  w.fc = random_matrix(kWidth, 3 * kWidth, rng, true);
  w.embedding_norm = w.hidden_norm = w.output_norm = w.ffn_norm = std::vector<float>(kWidth, 1.0f);
  w.q = random_matrix(32, 2 * kWidth, rng);
  w.k = random_matrix(16, 2 * kWidth, rng);
  w.v = random_matrix(16, 2 * kWidth, rng);
  w.o = random_matrix(kWidth, 32, rng);
  w.gate = random_matrix(kWidth, kWidth, rng);
  w.up = random_matrix(kWidth, kWidth, rng);
  w.down = random_matrix(kWidth, kWidth, rng);
  w.output = std::make_shared<GuessHead>(all_tokens(), random_matrix(kVocab, kWidth, rng), target.config());
  return w;
}

MedusaWeights medusa_weights(const CausalLm& target) {
  std::mt19937 rng(22);
  MedusaWeights w;
  const auto output =
      std::make_shared<GuessHead>(all_tokens(), random_matrix(kVocab, kWidth, rng), target.config());
  for (int h = 0; h < 3; ++h) {
    w.heads.emplace_back();
    w.heads.back().push_back({random_matrix(kWidth, kWidth, rng), {}});
    w.outputs.push_back(output);
  }
  return w;
}

// A text, and hidden states that could be those of its tokens.
struct Text {
  explicit Text(uint32_t seed) : rng(seed) {
    for (int i = 0; i < 400; ++i) tokens.push_back(static_cast<TokenId>(1 + rng() % (kVocab - 1)));
    values = test_vector(static_cast<uint32_t>(tokens.size()) * 3 * kWidth, rng, -2, 2);
  }
  HiddenRows rows(uint32_t first, uint32_t count) const {
    return {.first = first,
            .rows = count,
            .width = kWidth,
            .points = kPoints,
            .values = values.data() + size_t{first} * 3 * kWidth};
  }

  std::mt19937 rng;
  std::vector<TokenId> tokens;
  std::vector<float> values;
};

SamplingParams greedy() {
  SamplingParams params;
  params.temperature = 0;
  return params;
}

class HeadDrafters : public HeadsRig {
 public:
  HeadDrafters() : HeadsRig(2), sampler_(greedy(), 0, kVocab, {}, kernels) {}

  std::unique_ptr<EagleDrafter> eagle(uint32_t blocks = 200) {
    EagleWeights weights = eagle_weights(*target);
    const KvLayout layout = KvLayout::make(weights.config.kv_layers(), 16).value();
    return std::make_unique<EagleDrafter>(
        std::move(weights), *target, kernels, layout, pool,
        EagleDrafter::Options{.slots = 4, .blocks = blocks, .vocab = kVocab, .end_tokens = {0}});
  }
  std::unique_ptr<MedusaDrafter> medusa(std::vector<TokenId> ends = {0}) {
    return std::make_unique<MedusaDrafter>(
        medusa_weights(*target), kernels, pool,
        MedusaDrafter::Options{.slots = 4, .vocab = kVocab, .end_tokens = std::move(ends)});
  }

  DraftJob job(uint32_t slot, const Text& text, uint32_t first, uint32_t known, uint32_t most, Draft& draft) {
    draft.clear();
    return {.slot = slot,
            .known = std::span(text.tokens).subspan(first, known - first),
            .most = most,
            .sampler = &sampler_,
            .draft = &draft};
  }
  // What a drafter guesses for the first `known` tokens of a text in a slot.
  std::vector<TokenId> guesses(Drafter& drafter, uint32_t slot, const Text& text, uint32_t known,
                               uint32_t most = 3) {
    Draft draft;
    DraftJob asked = job(slot, text, 0, known, most, draft);
    drafter.propose({&asked, 1});
    return {draft.tokens.begin(), draft.tokens.begin() + draft.size};
  }

 private:
  Sampler sampler_;
};

// One drafter shown everything at once and asked once.
std::vector<TokenId> at_once(HeadDrafters& rig, Drafter& drafter, const Text& text, uint32_t known) {
  drafter.open(3, 400);
  drafter.see(3, text.rows(0, known - 1));
  const std::vector<TokenId> tokens = rig.guesses(drafter, 3, text, known);
  drafter.close(3);
  return tokens;
}

TEST(EagleDrafter, GuessesTheSameWheneverItIsAsked) {
  HeadDrafters rig;
  const auto drafter = rig.eagle();
  const Text text(5);
  drafter->open(0, 400);
  drafter->see(0, text.rows(0, 20));
  std::mt19937 rng(3);
  for (uint32_t known = 21; known < 125; ++known) {
    if (rng() % 3 == 0) {
      const std::vector<TokenId> got = rig.guesses(*drafter, 0, text, known);
      EXPECT_EQ(got.size(), 3u);
      EXPECT_EQ(got, at_once(rig, *drafter, text, known)) << known << " tokens";
    }
    // A token more; at times with rows of guesses behind it that are another text's.
    drafter->see(0, text.rows(known - 1, 1));
    if (rng() % 2 == 0) {
      HiddenRows wrong = text.rows(200, 4);
      wrong.first = known;
      drafter->see(0, wrong);
    }
  }
  drafter->close(0);
  EXPECT_EQ(drafter->blocks().owned(), 0u);
}

// What was served from a cache has no hidden states: the context begins behind it.
TEST(EagleDrafter, BeginsWhereHiddenStatesDo) {
  HeadDrafters rig;
  const auto drafter = rig.eagle();
  const Text text(6);
  drafter->open(0, 400);
  EXPECT_TRUE(rig.guesses(*drafter, 0, text, 30).empty());
  drafter->see(0, text.rows(25, 15));
  const std::vector<TokenId> got = rig.guesses(*drafter, 0, text, 41);
  EXPECT_EQ(got.size(), 3u);
  // A text that begins there.
  drafter->open(1, 400);
  HiddenRows rows = text.rows(25, 15);
  rows.first = 0;
  drafter->see(1, rows);
  Draft draft;
  DraftJob asked = rig.job(1, text, 25, 41, 3, draft);
  drafter->propose({&asked, 1});
  EXPECT_EQ(got, std::vector<TokenId>(draft.tokens.begin(), draft.tokens.begin() + draft.size));
}

TEST(EagleDrafter, NeighboursChangeNoGuess) {
  HeadDrafters rig;
  const auto drafter = rig.eagle();
  const Text texts[] = {Text(7), Text(8), Text(9)};
  const uint32_t known[] = {90, 14, 61};
  std::vector<TokenId> alone[3];
  for (uint32_t i = 0; i < 3; ++i) alone[i] = at_once(rig, *drafter, texts[i], known[i]);
  Draft drafts[3];
  std::vector<DraftJob> jobs;
  for (uint32_t i = 0; i < 3; ++i) {
    drafter->open(i, 400);
    drafter->see(i, texts[i].rows(0, known[i] - 1));
    jobs.push_back(rig.job(i, texts[i], 0, known[i], i + 1, drafts[i]));
  }
  drafter->propose(jobs);
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_EQ(drafts[i].size, i + 1);
    EXPECT_TRUE(std::equal(drafts[i].list().begin(), drafts[i].list().end(), alone[i].begin()));
  }
}

TEST(EagleDrafter, MakesNoGuessWithoutRoom) {
  HeadDrafters rig;
  const auto drafter = rig.eagle(2);
  const Text text(10);
  drafter->open(0, 400);
  drafter->see(0, text.rows(0, 20));
  EXPECT_EQ(rig.guesses(*drafter, 0, text, 21).size(), 3u);
  drafter->see(0, text.rows(20, 30));
  EXPECT_TRUE(rig.guesses(*drafter, 0, text, 51).empty());
  EXPECT_EQ(drafter->refusals(), 1u);
  EXPECT_TRUE(drafter->blocks().check_integrity().ok());
}

// Longer texts than are kept: the last window counts.
TEST(EagleDrafter, ReadsTheLastWindowOfALongText) {
  HeadDrafters rig;
  const auto drafter = rig.eagle();
  const Text text(11);
  drafter->open(0, 400);
  drafter->see(0, text.rows(0, 350));
  EXPECT_EQ(rig.guesses(*drafter, 0, text, 351).size(), 3u);
  EXPECT_EQ(drafter->blocks().owned(), (EagleDrafter::kWindow + 2 + 15) / 16);
}

TEST(MedusaDrafter, GuessesFromTheLastStateAlone) {
  HeadDrafters rig;
  const auto drafter = rig.medusa();
  const Text text(12);
  const std::vector<TokenId> want = at_once(rig, *drafter, text, 40);
  EXPECT_EQ(want.size(), 3u);
  drafter->open(0, 400);
  EXPECT_TRUE(rig.guesses(*drafter, 0, text, 40).empty());
  drafter->see(0, text.rows(37, 6));  // three of them behind what turned out right
  EXPECT_EQ(rig.guesses(*drafter, 0, text, 40), want);
  EXPECT_TRUE(rig.guesses(*drafter, 0, text, 60).empty()) << "no state of token 58 was shown";
  EXPECT_EQ(rig.guesses(*drafter, 0, text, 60, 8).size(), 0u);
}

TEST(MedusaDrafter, NeighboursChangeNoGuess) {
  HeadDrafters rig;
  const auto drafter = rig.medusa();
  const Text texts[] = {Text(13), Text(14), Text(15)};
  std::vector<TokenId> alone[3];
  for (uint32_t i = 0; i < 3; ++i) alone[i] = at_once(rig, *drafter, texts[i], 20);
  Draft drafts[3];
  std::vector<DraftJob> jobs;
  for (uint32_t i = 0; i < 3; ++i) {
    drafter->open(i, 400);
    drafter->see(i, texts[i].rows(0, 19));
    jobs.push_back(rig.job(i, texts[i], 0, 20, 3 - i, drafts[i]));
  }
  drafter->propose(jobs);
  for (uint32_t i = 0; i < 3; ++i) {
    ASSERT_EQ(drafts[i].size, 3 - i);
    EXPECT_TRUE(std::equal(drafts[i].list().begin(), drafts[i].list().end(), alone[i].begin()));
  }
}

TEST(MedusaDrafter, GuessesNothingBehindTheEnd) {
  HeadDrafters rig;
  const Text text(16);
  const auto drafter = rig.medusa();
  const std::vector<TokenId> want = at_once(rig, *drafter, text, 40);
  const auto ending = rig.medusa({want[0]});
  EXPECT_EQ(at_once(rig, *ending, text, 40), std::vector<TokenId>{want[0]});
}

}  // namespace
}  // namespace kvasir
