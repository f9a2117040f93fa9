#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "engine/eagle_drafter.h"
#include "kernels/table.h"
#include "models/causal_lm.h"
#include "models/eagle_layer.h"
#include "safetensors/safetensors_file.h"

namespace kvasir {

// What the build unpacked of tests/data/heads.
inline std::string heads_path(const std::string& file) {
  return std::string(KVASIR_PUBLIC_HEADS) + "/" + file;
}

// What vLLM drafts with a head in f32.
struct HeadGolden {
  std::vector<TokenId> tokens;  // the last one has no features yet
  std::vector<float> features;  // [tokens - 1][inputs], of the target
  std::vector<float> logits;    // [guesses][vocabulary]; -infinity where the head cannot guess a token
  std::vector<TokenId> drafts;  // [guesses]

  explicit HeadGolden(const std::string& name) {
    const auto file = SafetensorsFile::open(heads_path(name + "/golden.safetensors"));
    EXPECT_TRUE(file.ok()) << file.message();
    const auto ids = [&](const char* tensor) {
      const auto values = integer_values(*file->find(tensor));
      EXPECT_TRUE(values.ok()) << values.message();
      return std::vector<TokenId>(values->begin(), values->end());
    };
    tokens = ids("tokens");
    drafts = ids("drafts");
    features = float_values(*file->find("features")).value();
    logits = float_values(*file->find("logits")).value();
  }
  uint32_t rows() const { return static_cast<uint32_t>(tokens.size()) - 1; }
  uint32_t inputs() const { return static_cast<uint32_t>(features.size()) / rows(); }
  std::span<const float> logits_of(uint32_t guess) const {
    const size_t vocab = logits.size() / drafts.size();
    return std::span(logits).subspan(guess * vocab, vocab);
  }
};

// By how much logits differ, as a part of the largest one; infinity where they are not of the same tokens.
inline double worst_error(std::span<const float> got, std::span<const float> want) {
  double largest = 0, worst = 0;
  for (const float w : want) {
    if (std::isfinite(w)) largest = std::max(largest, std::fabs(double{w}));
  }
  for (size_t i = 0; i < want.size(); ++i) {
    if (std::isfinite(got[i]) != std::isfinite(want[i])) return std::numeric_limits<double>::infinity();
    if (std::isfinite(want[i])) worst = std::max(worst, std::fabs(double{got[i]} - double{want[i]}));
  }
  return worst / largest;
}

inline size_t best_of(std::span<const float> logits) {
  return static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

// The target that the heads draft for.
class HeadsTarget {
 public:
  HeadsTarget() : pool(2), kernels(kernel_table(best_isa())) {
    auto file = GgufFile::open(heads_path("target.gguf"));
    EXPECT_TRUE(file.ok()) << file.message();
    file_ = std::make_unique<GgufFile>(std::move(file).value());
    auto loaded = CausalLm::load(*file_, kernels, pool, {.max_rows = 64, .max_logit_rows = 64});
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    model = std::move(loaded).value();
  }
  uint32_t vocab() const { return model->config().vocab_size; }

  // Its own hidden states of a text: [tokens][points][width].
  std::vector<float> states(std::span<const TokenId> tokens, std::span<const uint32_t> points) {
    const KvLayout layout = KvLayout::make(model->config().kv_layers(), 16).value();
    KvStore store(layout, layout.units() * 4);
    std::vector<std::vector<BlockId>> blocks;
    std::vector<const BlockId*> tables;
    uint32_t next = 0;
    for (const KvLayout::Group& group : layout.groups()) {
      blocks.emplace_back();
      for (uint32_t i = 0; i < group.units * 4; ++i) blocks.back().push_back(BlockId{next++});
    }
    for (const auto& table : blocks) tables.push_back(table.data());
    std::vector<int32_t> positions;
    std::vector<uint32_t> rows;
    for (uint32_t i = 0; i < tokens.size(); ++i) {
      positions.push_back(static_cast<int32_t>(i));
      rows.push_back(i);
    }
    const ForwardBatch::Sequence sequence{0, static_cast<uint32_t>(tokens.size()), tables};
    std::vector<float> out(tokens.size() * points.size() * model->config().hidden_dim);
    ForwardBatch batch = {tokens, positions, {&sequence, 1}, {}};
    batch.hidden = {.rows = rows, .points = points, .out = out.data()};
    model->forward(batch, store, {});
    return out;
  }

  ThreadPool pool;
  const KernelTable& kernels;
  std::unique_ptr<CausalLm> model;

 private:
  std::unique_ptr<GgufFile> file_;
};

// Logits [guesses][vocabulary] of an EAGLE head behind a golden's text, whose features it reads; each next
// guess follows the golden's own.
inline std::vector<float> eagle_logits(EagleWeights weights, HeadsTarget& target, const HeadGolden& golden) {
  const uint32_t rows = golden.rows(), vocab = target.vocab();
  EagleLayer layer(std::move(weights), *target.model, target.kernels, target.pool, rows);
  const KvLayout layout = KvLayout::make(layer.weights().config.kv_layers(), 16).value();
  KvStore store(layout, 4);
  const BlockId blocks[] = {BlockId{0}, BlockId{1}, BlockId{2}, BlockId{3}};
  const BlockId* table = blocks;
  std::vector<float> logits(golden.drafts.size() * vocab);
  std::vector<TokenId> tokens(golden.tokens.begin() + 1, golden.tokens.end());
  uint32_t position = 0;
  for (uint32_t guess = 0; guess < golden.drafts.size(); ++guess) {
    const auto count = static_cast<uint32_t>(tokens.size()), last = count - 1;
    std::vector<int32_t> positions;
    for (uint32_t i = 0; i < count; ++i) positions.push_back(static_cast<int32_t>(position++));
    const ForwardBatch::Sequence sequence{0, count, {&table, 1}};
    layer.run({.tokens = tokens,
               .positions = positions,
               .sequences = {&sequence, 1},
               .guess_rows = {&last, 1},
               .features = guess == 0 ? std::span<const float>(golden.features) : std::span<const float>()},
              store);
    layer.weights().output->spread(layer.logits(0), std::span(logits).subspan(guess * vocab, vocab));
    std::copy_n(layer.hidden() + size_t{last} * layer.weights().width(), layer.weights().width(),
                layer.hidden());
    tokens = {golden.drafts[guess]};
  }
  return logits;
}

}  // namespace kvasir
