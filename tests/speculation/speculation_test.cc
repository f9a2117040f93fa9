// Speculation over real models changes no token, no log-probability and no ending: every drafter, 1 to 8
// guesses, 1 to 16 answers at once, greedy and sampled. Each combination gets some of the prompts; with
// KVASIR_TEST_FULL set (`make test-full`) each drafter gets more than a thousand.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <string>
#include <tuple>

#include "decoding/test_drafters.h"
#include "engine/drafters.h"
#include "tests/speculation/compared_answers.h"

namespace kvasir {
namespace {

using namespace testing_drafters;

constexpr uint32_t kTokens = 20;

bool full() {
  return std::getenv("KVASIR_TEST_FULL") != nullptr;
}

// Texts that repeat themselves, that ask for copying, code, JSON, other scripts, and hardly anything.
std::string prompt_text(uint32_t i) {
  const std::string n = std::to_string(i);
  switch (i % 8) {
    case 0:
      return "User: What is " + n + " plus one?\nAssistant:";
    case 1:
      return "def area_" + n + "(w, h):\n    return w * h\n\ndef area_" + n +
             "_twice(w, h):\n    return 2 * area_" + n + "(w, h)\n\ndef area_" + n +
             "_thrice(w, h):\n    return";
    case 2:
      return "{\"id\": " + n + ", \"name\": \"one\"}\n{\"id\": " + std::to_string(i + 1) +
             ", \"name\": \"two\"}\n{\"id\":";
    case 3:
      return "Copy this line: the quick brown fox number " + n +
             " jumps over the lazy dog.\nCopied: the quick brown fox number";
    case 4:
      return "\xE6\x9D\xB1\xE4\xBA\xAC" + n +
             "\xE3\x81\xA8\xE5\xA4\xA7\xE9\x98\xAA\xE3\x80\x82\xE6\x9D\xB1\xE4\xBA\xAC";
    case 5:
      return "\xF0\x9F\x98\x80 " + n + " \xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x91\xA7 \xF0\x9F\x98\x80 " + n;
    case 6:
      return "a a a a a a a a " + n;
    default:
      return n;
  }
}

Request request_of(const Tokenizer& tokenizer, uint32_t i) {
  Request r;
  r.prompt = tokenizer.encode(prompt_text(i), {});
  constexpr float kTemperatures[] = {0, 0.7f, 0, 1.2f};
  r.sampling.temperature = kTemperatures[i / 8 % 4];
  r.sampling.seed = i;
  r.sampling.max_tokens = kTokens;
  vary(r, i);
  return r;
}

// A model, and the guesses per step.
class Speculated : public RealModelTest,
                   public testing::WithParamInterface<std::tuple<const char*, uint32_t>> {
 protected:
  void SetUp() override { open(std::get<0>(GetParam()), 256); }

  std::unique_ptr<Engine> start(EngineConfig c, std::vector<std::unique_ptr<Drafter>> drafters) {
    auto engine = Engine::start(c, llm_->model(), llm_->tokenizer(), llm_->kernels(), llm_->pool(), nullptr,
                                std::move(drafters));
    EXPECT_TRUE(engine.ok()) << engine.message();
    return std::move(engine).value();
  }

  // What follows, by the answers without speculation.
  static Continuation continuation(const std::vector<Request>& requests,
                                   const std::vector<CollectedAnswer>& answers) {
    std::vector<std::vector<TokenId>> texts;
    for (size_t i = 0; i < requests.size(); ++i) {
      texts.push_back(requests[i].prompt);
      texts.back().insert(texts.back().end(), answers[i].tokens.begin(), answers[i].tokens.end());
    }
    return [texts](uint32_t, std::span<const TokenId> known, uint32_t count) {
      for (const auto& text : texts) {
        if (text.size() < known.size() || !std::equal(known.begin(), known.end(), text.begin())) continue;
        const auto from = text.begin() + static_cast<ptrdiff_t>(known.size());
        return std::vector<TokenId>(from, from + std::min<ptrdiff_t>(count, text.end() - from));
      }
      return std::vector<TokenId>();
    };
  }

  std::vector<std::unique_ptr<Drafter>> drafter(uint32_t kind, const EngineConfig& c,
                                                const Continuation& right) {
    const uint32_t vocab = llm_->model().config().vocab_size;
    std::vector<std::unique_ptr<Drafter>> list;
    if (kind < names_.size()) {
      EngineConfig with = c;
      with.speculation.drafters = parse_drafters(names_[kind]).value();
      auto made = make_drafters(with, llm_->draft_ground());
      EXPECT_TRUE(made.ok()) << made.message();
      return std::move(made).value();
    }
    switch (kind - names_.size()) {
      case 0:
        list.push_back(std::make_unique<OracleDrafter>(right));
        break;
      case 1:
        list.push_back(std::make_unique<AdversarialDrafter>(right, vocab));
        break;
      case 2:
        list.push_back(std::make_unique<RandomDrafter>(vocab));
        break;
      case 3:
        list.push_back(std::make_unique<ReplayDrafter>(right));
        break;
      default:
        list.push_back(std::make_unique<FixedRateDrafter>(right, 0.7, vocab));
    }
    return list;
  }

  static constexpr uint32_t kTestDrafters = 5;
  std::vector<std::string> names_ = {"ngram", "suffix", "outputs=1", "layers=9"};
};

TEST_P(Speculated, AnswersAreThoseOfPlainDecoding) {
  const uint32_t guesses = std::get<1>(GetParam());
  const uint32_t per_combination = full() ? 48 : 4;
  const std::vector<uint32_t> batches =
      full() ? std::vector<uint32_t>{1, 4, 16} : std::vector<uint32_t>{1, 16};
  // The model itself, of whose guesses only those among its first thousand tokens are made.
  if (full()) names_.push_back("draft=" + path_ + ":1000");
  auto next = static_cast<uint32_t>((guesses - 1) * batches.size() * per_combination);
  for (const uint32_t batch : batches) {
    std::vector<Request> requests;
    for (uint32_t i = 0; i < per_combination; ++i) requests.push_back(request_of(llm_->tokenizer(), next++));
    const std::vector<CollectedAnswer> plain = answers_of(*start(config(batch), {}), requests);
    const Continuation right = continuation(requests, plain);
    for (uint32_t kind = 0; kind < names_.size() + kTestDrafters; ++kind) {
      EngineConfig c = config(batch);
      c.speculation.most = guesses;
      c.speculation.always = true;
      auto drafters = drafter(kind, c, right);
      const std::string name(drafters[0]->name());
      const auto engine = start(c, std::move(drafters));
      const std::vector<CollectedAnswer> guessed = answers_of(*engine, requests);
      for (size_t i = 0; i < requests.size(); ++i)
        EXPECT_TRUE(same(guessed[i], plain[i])) << name << ", " << guesses << " guesses, " << batch
                                                << " at once, prompt " << next - per_combination + i;
    }
  }
}

std::vector<uint32_t> numbers_of_guesses() {
  return full() ? std::vector<uint32_t>{1, 2, 3, 4, 5, 6, 7, 8} : std::vector<uint32_t>{1, 5};
}

INSTANTIATE_TEST_SUITE_P(Real, Speculated,
                         testing::Combine(testing::Values("smollm2-135m-instruct-q4_1.gguf",
                                                          "gemma-3-270m-q4_k_m.gguf",
                                                          "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"),
                                          testing::ValuesIn(numbers_of_guesses())),
                         [](const auto& param) {
                           return model_test_name(std::get<0>(param.param)) + "_" +
                                  std::to_string(std::get<1>(param.param));
                         });

}  // namespace
}  // namespace kvasir
