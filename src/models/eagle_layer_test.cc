#include "models/eagle_layer.h"

#include <gtest/gtest.h>

#include <cstring>

#include "models/heads_rig.h"

namespace kvasir {
namespace {

constexpr uint32_t kWidth = 32, kHeadDim = 16, kFfn = 64, kTokens = 40, kRows = 12;
constexpr double kEps = 1e-5, kBase = 10000;
constexpr double kTolerance = 0.06;

using Row = std::vector<double>;

enum class Kind { kEagle1, kEagle3, kVariants };

// A head, and what it computes, in double precision and one row after the other. kVariants: EAGLE-3 with
// everything that only some files have.
struct Example {
  Example(Kind kind, uint32_t seed)
      : fuses(kind != Kind::kEagle1), variants(kind == Kind::kVariants), rng(seed) {
    for (TokenId t = 0; t < TokenId{kTokens}; ++t) ids.push_back(t + 5);
  }
  uint32_t inputs() const { return fuses ? 2 * kWidth : kWidth; }
  uint32_t points() const { return fuses ? 3 : 1; }

  EagleWeights weights(const ModelConfig& target) const {
    EagleWeights w;
    w.fuses_layers = fuses;
    ModelConfig& c = w.config;
    c.layers = 1;
    c.hidden_dim = kWidth;
    c.ffn_dim = kFfn;
    c.heads = 2;
    c.kv_heads = 1;
    c.head_dim = c.rope_dim = kHeadDim;
    c.context_length = 512;
    c.norm_eps = static_cast<float>(kEps);
    c.windows = {0};
    c.ropes = {LayerRope::kGlobal};
    c.rope_kind = RopeKind::kNeox;
    c.rope_base = kBase;
    c.attention_scale = 0.25f;
    w.points = fuses ? std::vector<uint32_t>{0, 1, HiddenTap::kOutputNorm}
                     : std::vector<uint32_t>{HiddenTap::kOutputNorm};
    w.fc = OwnMatrix::f16(fc.values, fc.n, fc.k);
    w.fc_bias = fc_bias;
    if (fuses) {
      w.embedding_norm = embedding_norm;
      w.hidden_norm = hidden_norm;
      w.output_norm = output_norm;
    }
    w.ffn_norm = ffn_norm;
    w.q = q.packed(), w.k = k.packed(), w.v = v.packed(), w.o = o.packed();
    w.gate = gate.packed(), w.up = up.packed(), w.down = down.packed();
    w.output = std::make_shared<GuessHead>(ids, output.packed(), target);
    if (variants) add_variants(w);
    return w;
  }
  void add_variants(EagleWeights& w) const {
    w.norm_before_residual = w.norm_output = true;
    w.features_norm = features_norm, w.layer_norms = layer_norms;
    w.q_bias = q_bias, w.k_bias = k_bias, w.v_bias = v_bias, w.o_bias = o_bias;
    w.q_norm = q_norm, w.k_norm = k_norm;
    w.config.head_norm = HeadNorm::kSharedWeights;
    w.rope_factors = factors;
    w.embedding = embedding.packed();
  }

  Row normed_features(Row state) const {
    if (!variants) return state;
    state = rms_of(state, features_norm, kEps);
    Row out;
    for (uint32_t first = 0; first < state.size(); first += kWidth) {
      const Row part = rms_of(Row(state.begin() + first, state.begin() + first + kWidth),
                              {layer_norms.begin() + first, layer_norms.begin() + first + kWidth}, kEps);
      out.insert(out.end(), part.begin(), part.end());
    }
    return out;
  }
  Row maybe(Row x, const std::vector<float>& bias) const { return variants ? plus(std::move(x), bias) : x; }
  // Heads through their norm, and turned.
  Row ready(const Row& heads, const std::vector<float>& norm, uint32_t position) const {
    if (!variants) return turned(heads, position);
    Row out;
    for (size_t first = 0; first < heads.size(); first += kHeadDim) {
      const Row head = rms_of(Row(heads.begin() + first, heads.begin() + first + kHeadDim), norm, kEps);
      out.insert(out.end(), head.begin(), head.end());
    }
    return turned(out, position);
  }
  // What the next guess goes on from.
  Row state_behind(const Row& x) const { return variants ? rms_of(x, output_norm, kEps) : x; }

  // Row `position` over what the rows before it left in keys and values; `state`: features, or what a row
  // gave.
  Row run(const Row& embedding_row, const Row& state, bool features, uint32_t position) {
    Row x, read;
    if (fuses) {
      x = features ? plus(fc.times(normed_features(state)), fc_bias) : state;
      const Row normed_x = rms_of(x, hidden_norm, kEps);
      read = joined(rms_of(embedding_row, embedding_norm, kEps), normed_x);
      if (variants) x = normed_x;
    } else {
      x = plus(fc.times(joined(embedding_row, state)), fc_bias);
      read = x;
    }
    keys.resize(position);
    values.resize(position);
    keys.push_back(ready(maybe(k.times(read), k_bias), k_norm, position));
    values.push_back(maybe(v.times(read), v_bias));
    const Row queries = ready(maybe(q.times(read), q_bias), q_norm, position);
    Row mixed;
    for (uint32_t h = 0; h < 2; ++h) {
      const Row part = attend(Row(queries.begin() + h * kHeadDim, queries.begin() + (h + 1) * kHeadDim));
      mixed.insert(mixed.end(), part.begin(), part.end());
    }
    add(x, maybe(o.times(mixed), o_bias));
    const Row normed = rms_of(x, ffn_norm, kEps);
    Row active = gate.times(normed);
    const Row wide = up.times(normed);
    for (uint32_t i = 0; i < kFfn; ++i) active[i] = silu_of(active[i]) * wide[i];
    add(x, down.times(active));
    return x;
  }
  Row logits(const Row& x) const { return output.times(fuses ? rms_of(x, output_norm, kEps) : x); }

  static Row joined(Row a, const Row& b) {
    a.insert(a.end(), b.begin(), b.end());
    return a;
  }
  static Row plus(Row x, const std::vector<float>& bias) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += double{bias[i]};
    return x;
  }
  static void add(Row& x, const Row& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] += y[i];
  }
  Row turned(Row heads, uint32_t position) const {
    for (size_t first = 0; first < heads.size(); first += kHeadDim) {
      for (uint32_t i = 0; i < kHeadDim / 2; ++i) {
        const double slower = variants ? double{factors[i]} : 1.0;
        const double angle = position * std::pow(kBase, -2.0 * i / kHeadDim) / slower;
        double& a = heads[first + i];
        double& b = heads[first + kHeadDim / 2 + i];
        const double turned_a = a * std::cos(angle) - b * std::sin(angle);
        b = b * std::cos(angle) + a * std::sin(angle);
        a = turned_a;
      }
    }
    return heads;
  }
  Row attend(const Row& query) const {
    Row out(kHeadDim, 0.0);
    double sum = 0;
    for (size_t p = 0; p < keys.size(); ++p) {
      double score = 0;
      for (uint32_t i = 0; i < kHeadDim; ++i) score += query[i] * keys[p][i];
      const double weight = std::exp(score * 0.25);
      sum += weight;
      for (uint32_t i = 0; i < kHeadDim; ++i) out[i] += weight * values[p][i];
    }
    for (double& x : out) x /= sum;
    return out;
  }

  bool fuses, variants;
  std::mt19937 rng;
  TestMatrix fc{kWidth, fuses ? 3 * kWidth : 2 * kWidth, rng};
  std::vector<float> fc_bias = test_vector(kWidth, rng, -0.1f, 0.1f);
  std::vector<float> embedding_norm = test_vector(kWidth, rng, 0.5f, 1.5f);
  std::vector<float> hidden_norm = test_vector(kWidth, rng, 0.5f, 1.5f);
  std::vector<float> output_norm = test_vector(kWidth, rng, 0.5f, 1.5f);
  std::vector<float> ffn_norm = test_vector(kWidth, rng, 0.5f, 1.5f);
  TestMatrix q{2 * kHeadDim, inputs(), rng}, k{kHeadDim, inputs(), rng}, v{kHeadDim, inputs(), rng};
  TestMatrix o{kWidth, 2 * kHeadDim, rng};
  TestMatrix gate{kFfn, kWidth, rng}, up{kFfn, kWidth, rng}, down{kWidth, kFfn, rng};
  TestMatrix output{kTokens, kWidth, rng};
  std::vector<float> features_norm = test_vector(3 * kWidth, rng, 0.5f, 1.5f);
  std::vector<float> layer_norms = test_vector(3 * kWidth, rng, 0.5f, 1.5f);
  std::vector<float> q_bias = test_vector(2 * kHeadDim, rng, -1, 1),
                     k_bias = test_vector(kHeadDim, rng, -1, 1);
  std::vector<float> v_bias = test_vector(kHeadDim, rng, -1, 1), o_bias = test_vector(kWidth, rng, -1, 1);
  std::vector<float> q_norm = test_vector(kHeadDim, rng, 0.5f, 1.5f);
  std::vector<float> k_norm = test_vector(kHeadDim, rng, 0.5f, 1.5f);
  std::vector<float> factors = test_vector(kHeadDim / 2, rng, 1, 4);
  TestMatrix embedding{70, kWidth, rng};
  std::vector<TokenId> ids;
  std::vector<Row> keys, values;
};

// The layer over one sequence, rows as they are given.
class Runner {
 public:
  Runner(const Example& example, uint32_t threads)
      : rig_(threads),
        layer_(example.weights(rig_.target->config()), *rig_.target, rig_.kernels, rig_.pool, kRows),
        layout_(KvLayout::make(layer_.weights().config.kv_layers(), 16).value()),
        store_(layout_, 2) {}

  EagleLayer& layer() { return layer_; }
  Row embedding(TokenId token) const {
    std::vector<float> x(kWidth);
    const OwnMatrix& own = layer_.weights().embedding;
    if (own.present())
      unpack_column(own.packed(), static_cast<uint32_t>(token), x.data());
    else
      rig_.target->read_embedding(token, x.data());
    return {x.begin(), x.end()};
  }
  // Guesses are wanted behind every row.
  void run(std::span<const TokenId> tokens, uint32_t first, std::span<const float> features) {
    std::vector<int32_t> positions;
    std::vector<uint32_t> rows;
    for (uint32_t i = 0; i < tokens.size(); ++i) {
      positions.push_back(static_cast<int32_t>(first + i));
      rows.push_back(i);
    }
    const ForwardBatch::Sequence sequence{0, static_cast<uint32_t>(tokens.size()), {&table_, 1}};
    layer_.run({.tokens = tokens,
                .positions = positions,
                .sequences = {&sequence, 1},
                .guess_rows = rows,
                .features = features},
               store_);
  }

 private:
  HeadsRig rig_;
  EagleLayer layer_;
  KvLayout layout_;
  KvStore store_;
  const BlockId blocks_[2] = {BlockId{1}, BlockId{0}};
  const BlockId* table_ = blocks_;
};

class EagleLayers : public testing::TestWithParam<Kind> {};

TEST_P(EagleLayers, ComputeWhatThePapersSay) {
  for (const uint32_t threads : {1u, 2u, 3u}) {
    Example example(GetParam(), 11);
    Runner runner(example, threads);
    const std::vector<TokenId> tokens = {3, 60, 17, 17, 9};
    const uint32_t width = example.points() * kWidth;
    const std::vector<float> features = test_vector(5 * width, example.rng, -2, 2);
    runner.run(tokens, 0, features);
    Row last;
    for (uint32_t r = 0; r < 5; ++r) {
      const Row state(features.begin() + r * width, features.begin() + (r + 1) * width);
      last = example.run(runner.embedding(tokens[r]), state, true, r);
      expect_close(runner.layer().hidden() + r * kWidth, example.state_behind(last), kTolerance);
      expect_close(runner.layer().logits(r), example.logits(last), kTolerance);
    }
    // Two guesses on from there, each from what the row before it gave.
    for (uint32_t guess = 0; guess < 2; ++guess) {
      const Row state = example.state_behind(last);
      std::copy(state.begin(), state.end(), runner.layer().hidden());
      const TokenId token = 30 + static_cast<TokenId>(guess);
      runner.run({&token, 1}, 5 + guess, {});
      last = example.run(runner.embedding(token), state, false, 5 + guess);
      expect_close(runner.layer().hidden(), example.state_behind(last), kTolerance);
      expect_close(runner.layer().logits(0), example.logits(last), kTolerance);
    }
  }
}

TEST_P(EagleLayers, GiveTheSameBitsRowByRow) {
  Example example(GetParam(), 12);
  const std::vector<TokenId> tokens = {3, 60, 17, 17, 9, 2, 1};
  const uint32_t width = example.points() * kWidth;
  const std::vector<float> features = test_vector(7 * width, example.rng, -2, 2);
  Runner together(example, 2);
  together.run(tokens, 0, features);
  for (const uint32_t threads : {1u, 2u}) {
    Runner alone(example, threads);
    for (uint32_t r = 0; r < 7; ++r) {
      alone.run({&tokens[r], 1}, r, std::span(features).subspan(r * width, width));
      EXPECT_EQ(
          std::memcmp(alone.layer().hidden(), together.layer().hidden() + r * kWidth, kWidth * sizeof(float)),
          0)
          << "row " << r;
      EXPECT_EQ(std::memcmp(alone.layer().logits(0), together.layer().logits(r), kTokens * sizeof(float)), 0)
          << "row " << r;
    }
  }
}

std::string name_of(const testing::TestParamInfo<Kind>& info) {
  if (info.param == Kind::kEagle1) return "Eagle1";
  return info.param == Kind::kEagle3 ? "Eagle3" : "Variants";
}

INSTANTIATE_TEST_SUITE_P(All, EagleLayers, testing::Values(Kind::kEagle1, Kind::kEagle3, Kind::kVariants),
                         name_of);

}  // namespace
}  // namespace kvasir
