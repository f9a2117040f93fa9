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
