// Guesses from the text alone are right as often as they were: a change that makes them worse changes no
// answer, and shows here.

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "engine/drafters.h"
#include "tests/speculation/compared_answers.h"

namespace kvasir {
namespace {

class GuessesFromTheText : public RealModelTest {
 protected:
  void SetUp() override { open("smollm2-135m-instruct-q4_1.gguf", 1024); }
};

std::string asked(const std::string& message) {
  return "<|im_start|>user\n" + message + "<|im_end|>\n<|im_start|>assistant\n";
}

// A function to be changed, a text to be quoted, and a list that goes on.
const std::vector<std::string> kPrompts = {
    asked("Rename the argument `values` to `numbers` and write the function again:\n```python\ndef "
          "mean(values):\n"
          "    if len(values) == 0:\n        return 0.0\n    total = 0.0\n    for value in values:\n        "
          "total += "
          "value\n    return total / len(values)\n```"),
    asked("Repeat this text word by word: \"The lighthouse keeper wrote in his book every night. On the last "
          "night "
          "of the year he wrote that the lamp had burned for a hundred years, and that no ship had been "
          "lost.\""),
    "{\"id\": 1, \"name\": \"Ada Lovelace\", \"born\": 1815, \"field\": \"mathematics\"}\n{\"id\": 2, "
    "\"name\": "
    "\"Alan Turing\", \"born\": 1912, \"field\": \"mathematics\"}\n{\"id\": 3, \"name\":",
};

// Tokens that a verification of at most four guesses gives on average, and how many of a hundred tokens of
// the answers were guessed right.
TEST_F(GuessesFromTheText, AreRightAsOftenAsTheyWere) {
  std::vector<Request> requests;
  for (const std::string& prompt : kPrompts) {
    Request r;
    r.prompt = llm_->tokenizer().encode(prompt, {.parse_special = true});
    r.sampling.temperature = 0;
    r.sampling.max_tokens = 100;
    requests.push_back(std::move(r));
  }
  const struct {
    const char* drafter;
    double tokens, share;
  } want[] = {{"ngram", 4.10, 54.6}, {"suffix", 3.0, 55.9}};
  for (const auto& [drafter, tokens, share] : want) {
    EngineConfig c = config(1);
    c.speculation.drafters = parse_drafters(drafter).value();
    c.speculation.most = 4;
    c.speculation.always = true;
    auto engine = llm_->start_engine(c);
    ASSERT_TRUE(engine.ok()) << engine.message();
    uint64_t said = 0;
    for (const CollectedAnswer& answer : answers_of(**engine, requests)) said += answer.tokens.size();
    const DrafterStats stats = stats_when_idle(**engine).speculation.drafters[0];
    const auto accepted = static_cast<double>(stats.accepted);
    EXPECT_NEAR(1 + accepted / static_cast<double>(stats.drafts), tokens, 0.03 * tokens) << drafter;
    EXPECT_NEAR(100 * accepted / static_cast<double>(said), share, 0.05 * share) << drafter;
  }
}

}  // namespace
}  // namespace kvasir
