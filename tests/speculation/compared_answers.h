#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "engine/collect_answers.h"

namespace kvasir {

// What a request asks for beside its answer, by its number: each combination comes up.
inline void vary(Request& r, uint32_t i) {
  if (i % 3 == 0) r.sampling.logprobs = 2;
  if (i % 5 == 0) r.sampling.top_k = 20;
  if (i % 7 == 0) r.sampling.repetition_penalty = 1.2f;
  if (i % 11 == 0) r.sampling.min_tokens = 10;
  if (i % 13 == 0) r.stop = {"\n", "2"};
}

// Tokens, texts, ends, and log-probabilities to the bit.
inline bool same(const CollectedAnswer& a, const CollectedAnswer& b) {
  const auto bits = [](const SampledToken& t) { return std::bit_cast<uint32_t>(t.logprob); };
  return a.tokens == b.tokens && a.text == b.text && a.finish == b.finish &&
         std::ranges::equal(a.logprobs, b.logprobs, {}, bits, bits);
}

inline std::vector<CollectedAnswer> answers_of(Engine& engine, const std::vector<Request>& requests) {
  auto answers = collect_answers(engine, requests);
  EXPECT_TRUE(answers.ok()) << answers.message();
  return answers.ok() ? *std::move(answers) : std::vector<CollectedAnswer>(requests.size());
}

}  // namespace kvasir
