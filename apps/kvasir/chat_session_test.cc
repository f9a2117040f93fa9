#include "apps/kvasir/chat_session.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>

#include "server/fake_engine.h"

namespace kvasir {
namespace {

class ChatSessionTest : public ::testing::Test {
 protected:
  ChatSession session() {
    ServedModel model;
    model.engine = &engine_;
    model.tokenizer = &tokenizer_;
    ChatSettings settings;
    settings.max_tokens = 900;
    return ChatSession(model, settings);
  }

  testing::ByteTokenizer tokenizer_;
  testing::FakeEngine engine_{tokenizer_};
};

TEST_F(ChatSessionTest, HandsOutTheAnswerAsItComes) {
  std::string shown;
  const auto answer = session().say(
      "Hi",
      [&](std::string_view text) {
        shown += text;
        return Status();
      },
      [] { return false; });
  ASSERT_TRUE(answer.ok()) << answer.message();
  EXPECT_EQ(answer->text, "Hello there!");
  EXPECT_EQ(shown, "Hello there!");
  EXPECT_FALSE(answer->interrupted);
}

TEST(ChatAnswer, EndsWithItsSpeeds) {
  ChatSession::Answer answer;
  answer.prompt_tokens = 120;
  answer.cached_tokens = 96;
  answer.output_tokens = 41;
  answer.prompt_seconds = 0.5;
  answer.output_seconds = 2;
  EXPECT_EQ(answer.summary(),
            "[41 tokens, 20.0 tokens/s; prompt 120 tokens, 96 from the cache, 48.0 tokens/s]");
  answer.drafting = {.steps = 25, .drafts = 8, .drafted = 20, .accepted = 16, .saved_seconds = 1.25};
  EXPECT_EQ(
      answer.summary(),
      "[41 tokens, 20.0 tokens/s, 16 of 20 guesses right, 1.64 tokens per step, 1.2 s saved; prompt 120 "
      "tokens, 96 from the cache, 48.0 tokens/s]");
  answer.drafting.saved_seconds = -0.75;
  answer.cut = true;
  EXPECT_EQ(answer.summary(),
            "[41 tokens, 20.0 tokens/s, 16 of 20 guesses right, 1.64 tokens per step, 0.8 s lost; prompt 120 "
            "tokens, 96 from the cache, 48.0 tokens/s; cut at the token limit]");
  answer.drafting.saved_seconds = 0;  // nothing was predicted
  EXPECT_EQ(answer.summary().find(" s "), std::string::npos);
}

TEST_F(ChatSessionTest, StopsAnAnswerThatCannotBeShown) {
  engine_.answer = [](const Request&, uint32_t) { return std::string(800, 'x'); };
  engine_.step_ms = 2;
  std::atomic<int> shown{0};
  const auto answer = session().say(
      "Hi",
      [&](std::string_view) {
        ++shown;
        return io_error("cannot write standard output: No space left on device");
      },
      [] { return false; });
  ASSERT_FALSE(answer.ok());
  EXPECT_EQ(answer.status().code(), ErrorCode::kIo);
  EXPECT_EQ(answer.message(), "cannot write standard output: No space left on device");
  EXPECT_EQ(shown.load(), 1);
  EXPECT_EQ(engine_.cancelled.load(), 1);
}

TEST_F(ChatSessionTest, StopsWhenItIsTold) {
  engine_.answer = [](const Request&, uint32_t) { return std::string(800, 'x'); };
  engine_.step_ms = 2;
  const auto answer = session().say(
      "Hi", [](std::string_view) { return Status(); }, [] { return true; });
  ASSERT_TRUE(answer.ok()) << answer.message();
  EXPECT_TRUE(answer->interrupted);
  EXPECT_LT(answer->text.size(), 800u);
  EXPECT_EQ(engine_.cancelled.load(), 1);
}

}  // namespace
}  // namespace kvasir
