#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/build_kind.h"
#include "engine/collect_answers.h"
#include "engine/llm.h"
#include "tests/model_fixture.h"

namespace kvasir {

// What a request asks for beside its answer, by its number: each combination comes up.
inline void vary(Request& r, uint32_t i) {
  if (i % 3 == 0) r.sampling.logprobs = 2;
  if (i % 5 == 0) r.sampling.top_k = 20;
  if (i % 7 == 0) r.sampling.repetition_penalty = 1.2f;
  if (i % 11 == 0) r.sampling.min_tokens = 10;
  if (i % 4 == 1) r.sampling.top_p = 0.9f;
  if (i % 9 == 0) r.sampling.min_p = 0.05f;
  if (i % 6 == 1) r.sampling.frequency_penalty = 0.5f;
  if (i % 10 == 0) r.sampling.presence_penalty = 0.7f;
  if (i % 8 == 3)
    r.sampling.logit_bias = {{static_cast<TokenId>(100 + i % 50), 4.0f},
                             {static_cast<TokenId>(i % 60), -100.0f}};
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

// Tests of a real model behind engines of their own; skipped where it is not there.
class RealModelTest : public testing::Test {
 protected:
  // Called from SetUp().
  void open(const std::string& file, uint32_t max_model_len) {
    if (kSlowBuild) GTEST_SKIP() << "sanitised builds test speculation over small models";
    path_ = model_path(file);
    max_model_len_ = max_model_len;
    if (!std::filesystem::exists(path_))
      GTEST_SKIP() << path_ << " is absent: tools/fetch_models.py fetches it";
    Llm::Options options;
    options.threads = 2;
    options.engine = config(16);
    auto opened = Llm::open(path_, options);
    ASSERT_TRUE(opened.ok()) << opened.message();
    llm_ = std::move(opened).value();
  }
  EngineConfig config(uint32_t batch) const {
    EngineConfig c;
    c.max_num_seqs = batch;
    c.max_model_len = max_model_len_;
    c.kv_bytes = uint64_t{96} << 20;
    c.max_queued_requests = 4096;
    c.check_invariants = true;
    return c;
  }

  std::string path_;
  uint32_t max_model_len_ = 0;
  std::unique_ptr<Llm> llm_;
};

}  // namespace kvasir
