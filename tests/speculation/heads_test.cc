// The heads that ship with the project, on the model that they were trained for: answers are those without
// them, to the bit; and guesses are right as often as they were when the heads were made.

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "engine/drafters.h"
#include "tests/speculation/compared_answers.h"

namespace kvasir {
namespace {

constexpr const char* kModel = "smollm2-135m-instruct-q4_1.gguf";

std::string head_file(const std::string& kind) {
  return std::string(KVASIR_SOURCE_DIR) + "/data/heads/smollm2-135m-instruct." + kind + ".safetensors";
}

std::string chat(const std::string& message) {
  return "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging "
         "Face<|im_end|>\n<|im_start|>user\n" +
         message + "<|im_end|>\n<|im_start|>assistant\n";
}

// Chat, code, a story, copying, other scripts, and hardly anything.
std::string prompt_text(uint32_t i) {
  const std::string n = std::to_string(i);
  switch (i % 6) {
    case 0:
      return chat("Give me three reasons to get up at " + n + " in the morning.");
    case 1:
      return chat("Write a Python function that adds " + n + " to a number.");
    case 2:
      return chat("Tell me a story about house number " + n + ".");
    case 3:
      return "Copy: the quick brown fox " + n + " jumps.\nCopied: the quick brown fox";
    case 4:
      return "\xE6\x9D\xB1\xE4\xBA\xAC" + n + "\xE3\x81\xA8\xE5\xA4\xA7\xE9\x98\xAA \xF0\x9F\x98\x80";
    default:
      return n;
  }
}

Request request_of(const Tokenizer& tokenizer, uint32_t i) {
  Request r;
  r.prompt = tokenizer.encode(prompt_text(i), {.parse_special = true});
  constexpr float kTemperatures[] = {0, 0.7f, 0, 1.2f};
  r.sampling.temperature = kTemperatures[i / 6 % 4];
  r.sampling.seed = i;
  r.sampling.max_tokens = 24;
  vary(r, i);
  return r;
}

class ShippedHeads : public RealModelTest {
 protected:
  void SetUp() override { open(kModel, 512); }
  // With so many guesses of a drafter, always; 0: without.
  std::unique_ptr<Engine> start(EngineConfig c, const std::string& drafters, uint32_t guesses) {
    if (guesses > 0) {
      c.speculation.drafters = parse_drafters(drafters).value();
      c.speculation.most = guesses;
      c.speculation.always = true;
    }
    auto engine = llm_->start_engine(c);
    EXPECT_TRUE(engine.ok()) << engine.message();
    return std::move(engine).value();
  }
  static std::string drafter(const std::string& kind) { return kind + "=" + head_file(kind); }
};

TEST_F(ShippedHeads, AnswersAreThoseWithoutThem) {
  const bool full = std::getenv("KVASIR_TEST_FULL") != nullptr;
  const uint32_t per_combination = full ? 48 : 6;
  uint32_t next = 0;
  for (uint32_t guesses = 1; guesses <= 8; guesses += full ? 1 : 3) {
    for (const uint32_t batch : {1u, 4u, 16u}) {
      std::vector<Request> requests;
      for (uint32_t i = 0; i < per_combination; ++i)
        requests.push_back(request_of(llm_->tokenizer(), next++));
      const std::vector<CollectedAnswer> plain = answers_of(*start(config(batch), "", 0), requests);
      for (const std::string& drafters :
           {drafter("medusa"), drafter("eagle"), drafter("medusa") + "," + drafter("eagle") + ",ngram"}) {
        const auto engine = start(config(batch), drafters, guesses);
        const std::vector<CollectedAnswer> guessed = answers_of(*engine, requests);
        for (size_t i = 0; i < requests.size(); ++i)
          EXPECT_TRUE(same(guessed[i], plain[i])) << drafters << ", " << guesses << " guesses, " << batch
                                                  << " at once, prompt " << next - per_combination + i;
      }
    }
  }
}

// A pool in which sequences come, go and come back.
TEST_F(ShippedHeads, AnswersAreThoseWithoutThemWhereMemoryIsShort) {
  EngineConfig c = config(8);
  c.max_num_batched_tokens = 24;
  std::vector<Request> requests;
  for (uint32_t i = 0; i < 10; ++i) {
    requests.push_back(request_of(llm_->tokenizer(), 100 + i));
    requests.back().sampling.max_tokens = 60;
  }
  const std::vector<CollectedAnswer> plain = answers_of(*start(c, "", 0), requests);
  c.kv_bytes = uint64_t{6} << 20;
  for (const std::string kind : {"medusa", "eagle"}) {
    const auto engine = start(c, drafter(kind), 3);
    EXPECT_TRUE(std::ranges::equal(answers_of(*engine, requests), plain, same)) << kind;
    EXPECT_GT(engine->stats().preemptions, 0u);
  }
}

// Tokens that a verification of three guesses gives on average, on prompts that no head was trained on
// (docs/speculation.md). A change of the heads' arithmetic that makes guesses worse shows here and nowhere
// else.
TEST_F(ShippedHeads, GuessesAreRightAsOftenAsTheyWere) {
  constexpr const char* kPrompts[] = {
      "My bicycle's chain keeps jumping when I pedal hard uphill. What could be the reasons?",
      "I sleep badly before exams. Give me some advice.",
      "How do I read a large CSV file in Python without loading all of it into memory?",
      "Write a short story about a lighthouse keeper who finds a letter in a bottle.",
      "What is the difference between INNER JOIN and LEFT JOIN?",
      "Write a friendly email to my landlord asking whether I may paint the living room.",
  };
  std::vector<Request> requests;
  for (const char* prompt : kPrompts) {
    Request r;
    r.prompt = llm_->tokenizer().encode(chat(prompt), {.parse_special = true});
    r.sampling.temperature = 0;
    r.sampling.max_tokens = 100;
    requests.push_back(std::move(r));
  }
  const struct {
    const char* kind;
    double tokens;
  } want[] = {{"medusa", 1.41}, {"eagle", 1.95}};
  for (const auto& [kind, tokens] : want) {
    const auto engine = start(config(4), drafter(kind), 3);
    answers_of(*engine, requests);
    const DrafterStats stats = stats_when_idle(*engine).speculation.drafters[0];
    EXPECT_EQ(stats.name, kind);
    const double per_draft = 1 + static_cast<double>(stats.accepted) / static_cast<double>(stats.drafts);
    EXPECT_NEAR(per_draft, tokens, 0.05 * tokens) << kind;
  }
}

}  // namespace
}  // namespace kvasir
