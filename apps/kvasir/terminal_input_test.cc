#include "apps/kvasir/terminal_input.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include <chrono>
#include <string_view>
#include <thread>

#include "apps/kvasir/output.h"

namespace kvasir {
namespace {

// A pipe to read from, and the signal mask as it was put back at the end.
class TerminalInputTest : public testing::Test {
 protected:
  TerminalInputTest() {
    ::pthread_sigmask(SIG_SETMASK, nullptr, &mask_);
    EXPECT_EQ(::pipe2(ends_, O_CLOEXEC), 0);
  }
  ~TerminalInputTest() override {
    ::close(ends_[0]);
    hang_up();
    ::pthread_sigmask(SIG_SETMASK, &mask_, nullptr);
  }

  int reader() const { return ends_[0]; }
  void type(std::string_view text) { EXPECT_TRUE(write_output(text, ends_[1]).ok()); }
  void hang_up() {
    if (ends_[1] >= 0) ::close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  sigset_t mask_;
  int ends_[2];
};

TEST_F(TerminalInputTest, ReadsEverythingLessTheNewlinesAtTheEnd) {
  TerminalInput input(reader());
  type("one\ntwo\n\n");
  hang_up();
  const auto text = input.read_all();
  ASSERT_TRUE(text.ok()) << text.message();
  EXPECT_EQ(*text, "one\ntwo");
}

TEST_F(TerminalInputTest, CtrlCEndsReadingEverything) {
  TerminalInput input(reader());
  type("half a que");
  std::thread person([] {
    std::this_thread::sleep_for(std::chrono::milliseconds(30));
    ::kill(::getpid(), SIGINT);
  });
  const auto text = input.read_all();
  person.join();
  ASSERT_TRUE(text.ok()) << text.message();
  EXPECT_FALSE(text->has_value());
}

TEST_F(TerminalInputTest, CtrlCEndsALine) {
  TerminalInput input(reader());
  ::raise(SIGINT);
  EXPECT_EQ(input.read_line(""), std::nullopt);
  EXPECT_FALSE(input.interrupted());  // it has been noticed
}

TEST_F(TerminalInputTest, GivesLinesAndWhatIsBehindTheLast) {
  TerminalInput input(reader());
  type("one\n\ntwo");
  hang_up();
  EXPECT_EQ(input.read_line(""), "one");
  EXPECT_EQ(input.read_line(""), "");
  EXPECT_EQ(input.read_line(""), "two");
  EXPECT_EQ(input.read_line(""), std::nullopt);
}

TEST_F(TerminalInputTest, AnInputThatCannotBeReadIsAnError) {
  const int folder = ::open("/", O_RDONLY | O_CLOEXEC);
  TerminalInput input(folder);
  const auto text = input.read_all();
  ::close(folder);
  ASSERT_FALSE(text.ok());
  EXPECT_EQ(text.message(), "cannot read standard input: Is a directory");
}

TEST_F(TerminalInputTest, AClosedInputHoldsNothing) {
  const int closed = ::open("/dev/null", O_WRONLY | O_CLOEXEC);  // as main() leaves one that came closed
  TerminalInput input(closed);
  const auto text = input.read_all();
  ::close(closed);
  ASSERT_TRUE(text.ok()) << text.message();
  EXPECT_EQ(*text, "");
}

}  // namespace
}  // namespace kvasir
