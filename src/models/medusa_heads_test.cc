#include "models/medusa_heads.h"

#include <gtest/gtest.h>

#include <cstring>

#include "models/heads_rig.h"

namespace kvasir {
namespace {

constexpr uint32_t kWidth = 32, kTokens = 40;

// Two heads of two blocks, with output heads of their own or one for both.
struct Example {
  explicit Example(bool shared, std::mt19937& rng) {
    for (uint32_t h = 0; h < 2; ++h) {
      for (uint32_t j = 0; j < 2; ++j) {
        blocks[h].emplace_back(kWidth, kWidth, rng);
        biases[h].push_back(test_vector(kWidth, rng, -0.2f, 0.2f));
      }
      outputs.emplace_back(kTokens, kWidth, rng);
    }
    if (shared) outputs[1] = outputs[0];
    for (TokenId t = 0; t < TokenId{kTokens}; ++t) ids.push_back(t + 3);
  }

  MedusaWeights weights(const ModelConfig& target) const {
    MedusaWeights w;
    const bool shared = outputs[0].values == outputs[1].values;
    for (uint32_t h = 0; h < 2; ++h) {
      w.heads.emplace_back();
      for (uint32_t j = 0; j < 2; ++j) w.heads[h].push_back({blocks[h][j].packed(), biases[h][j]});
      w.outputs.push_back(h == 1 && shared ? w.outputs[0]
                                           : std::make_shared<GuessHead>(ids, outputs[h].packed(), target));
    }
    return w;
  }

  std::vector<double> logits(uint32_t head, const std::vector<float>& state) const {
    std::vector<double> x(state.begin(), state.end());
    for (uint32_t j = 0; j < 2; ++j) {
      const std::vector<double> y = blocks[head][j].times(x);
      for (uint32_t i = 0; i < kWidth; ++i) x[i] += silu_of(y[i] + double{biases[head][j][i]});
    }
    return outputs[head].times(x);
  }

  std::vector<TestMatrix> blocks[2];
  std::vector<std::vector<float>> biases[2];
  std::vector<TestMatrix> outputs;
  std::vector<TokenId> ids;
};

TEST(MedusaHeads, ComputeWhatThePaperSays) {
  for (const bool shared : {true, false}) {
    for (const uint32_t threads : {1u, 2u, 3u}) {
      std::mt19937 rng(7);
      const Example example(shared, rng);
      HeadsRig rig(threads);
      MedusaHeads heads(example.weights(rig.target->config()), rig.kernels, rig.pool, 4);
      ASSERT_EQ(heads.count(), 2u);
      std::vector<std::vector<float>> states;
      for (uint32_t i = 0; i < 5; ++i) {
        states.push_back(test_vector(kWidth, rng, -2, 2));
        std::copy(states[i].begin(), states[i].end(), heads.states() + i * kWidth);
      }
      heads.run(std::vector<uint32_t>{3, 2});
      for (uint32_t i = 0; i < 5; ++i)
        expect_close(heads.logits(i), example.logits(i < 3 ? 0 : 1, states[i]), 0.03);
    }
  }
}

TEST(MedusaHeads, NeighboursTouchNoBit) {
  std::mt19937 rng(8);
  const Example example(true, rng);
  HeadsRig rig(2);
  MedusaHeads heads(example.weights(rig.target->config()), rig.kernels, rig.pool, 8);
  const std::vector<float> states = test_vector(6 * kWidth, rng, -2, 2);
  std::copy(states.begin(), states.end(), heads.states());
  heads.run(std::vector<uint32_t>{4, 2});
  const std::vector<float> third(heads.logits(3), heads.logits(3) + kTokens);
  std::copy_n(states.begin() + 3 * kWidth, kWidth, heads.states());
  heads.run(std::vector<uint32_t>{1});
  EXPECT_EQ(std::memcmp(heads.logits(0), third.data(), kTokens * sizeof(float)), 0);
}

TEST(GuessHead, NamesTheTargetsTokens) {
  std::mt19937 rng(9);
  HeadsRig rig(1);
  const TestMatrix rows(4, kWidth, rng);
  const GuessHead head({2, 5, 11, 60}, rows.packed(), rig.target->config());
  const std::vector<float> logits = {1, 4, 3, 4};
  BestLogits best;
  best.start(2);
  std::vector<float> padded(head.stride());
  std::copy(logits.begin(), logits.end(), padded.begin());
  head.take_best(padded.data(), rig.kernels, best);
  ASSERT_EQ(best.count, 2u);
  std::vector<TokenId> tokens = {best.heap[0].id, best.heap[1].id};
  std::sort(tokens.begin(), tokens.end());
  EXPECT_EQ(tokens, (std::vector<TokenId>{5, 60}));
  std::vector<float> row(70);
  head.spread(logits.data(), row);
  EXPECT_EQ(row[11], 3.0f);
  EXPECT_TRUE(std::isinf(row[10]));
}

// The target's own rows give the target's own logits, as far as eight bits go.
TEST(GuessHead, TakesRowsOfTheTarget) {
  HeadsRig rig(1);
  const std::vector<TokenId> ids = {1, 7, 69};
  const OwnMatrix rows = rows_of_head(*rig.target, ids);
  std::vector<float> want(kWidth), got(kWidth);
  for (uint32_t i = 0; i < 3; ++i) {
    rig.target->read_head_row(ids[i], want.data());
    unpack_column(rows.packed(), i, got.data());
    for (uint32_t j = 0; j < kWidth; ++j) EXPECT_NEAR(got[j], want[j], 0.003);
  }
}

}  // namespace
}  // namespace kvasir
