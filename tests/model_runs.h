#pragma once

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "tests/model_fixture.h"

// One text through a model in different ways; what comes out must be the same.
namespace kvasir {

inline std::vector<TokenId> random_tokens(uint32_t count, uint32_t vocab, uint32_t seed) {
  std::mt19937 rng(seed);
  std::vector<TokenId> tokens(count);
  for (TokenId& t : tokens) t = static_cast<TokenId>(rng() % vocab);
  return tokens;
}

// Logits of every position of one sequence, computed in chunks of `chunk` rows beside `mates` other sequences
// whose rows come before and after it.
inline std::vector<float> run(LoadedModel& m, const std::vector<TokenId>& tokens, uint32_t chunk,
                              uint32_t mates) {
  std::vector<LoadedModel::Tables> tables;
  std::vector<std::vector<TokenId>> texts;
  for (uint32_t s = 0; s <= mates; ++s) {
    tables.push_back(m.make_tables(s * 4, 4));
    texts.push_back(
        s == mates / 2 ? tokens : random_tokens(static_cast<uint32_t>(tokens.size()), m.vocab(), 1000 + s));
  }
  std::vector<float> all(static_cast<size_t>(tokens.size()) * m.vocab());
  for (uint32_t first = 0; first < tokens.size(); first += chunk) {
    const auto rows = std::min<uint32_t>(chunk, static_cast<uint32_t>(tokens.size()) - first);
    std::vector<TokenId> batch_tokens;
    std::vector<int32_t> positions;
    std::vector<ForwardBatch::Sequence> sequences;
    std::vector<uint32_t> logit_rows;
    for (uint32_t s = 0; s <= mates; ++s) {
      sequences.push_back({static_cast<uint32_t>(batch_tokens.size()), rows, tables[s].pointers});
      for (uint32_t r = 0; r < rows; ++r) {
        if (s == mates / 2) logit_rows.push_back(static_cast<uint32_t>(batch_tokens.size()));
        batch_tokens.push_back(texts[s][first + r]);
        positions.push_back(static_cast<int32_t>(first + r));
      }
    }
    std::span<float> out(all.data() + static_cast<size_t>(first) * m.vocab(),
                         static_cast<size_t>(rows) * m.vocab());
    m.model().forward({batch_tokens, positions, sequences, logit_rows}, m.store(), out);
  }
  return all;
}

// NaN equals nothing, lest two broken runs agree.
inline bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0 &&
         std::all_of(a.begin(), a.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace kvasir
