#include "engine/choice.h"

#include <gtest/gtest.h>

#include "engine/core_rig.h"

namespace kvasir {
namespace {

// Asks accept() directly, so that the tokens are the test's own.
class AcceptTest : public testing::Test {
 protected:
  AcceptTest()
      : tokenizer_(48), layout_(KvLayout::make(std::vector<KvLayerSpec>{{1, 8, 0}}, 16).value()), pool_(8) {}

  void start(Request request) {
    active_.request = std::move(request);
    const Request& r = active_.request;
    choice_ = std::make_unique<Choice>(
        active_, 2, Sampler(r.sampling, 2, 48, tokenizer_.end_tokens(), kernel_table(best_isa())),
        TextAssembler(tokenizer_, {r.stop, r.include_stop, r.special_text}),
        BlockTable(layout_, pool_, cache_, "", 64), std::vector<TokenId>{1, 2, 3}, 3);
  }
  FinishReason accept(TokenId token) { return choice_->accept({token, -0.5f, {}}, tokenizer_, 16); }

  FakeTokenizer tokenizer_;
  KvLayout layout_;
  BlockPool pool_;
  PrefixCache cache_{layout_, pool_, {}};
  ActiveRequest active_;
  std::unique_ptr<Choice> choice_;
};

TEST_F(AcceptTest, EndTokenWinsOverLength) {
  Request r = fake_request({1}, 2);
  start(r);
  EXPECT_EQ(accept(1), FinishReason::kNone);
  EXPECT_EQ(accept(0), FinishReason::kStop);
  const TokenEvent e = choice_->take_event();
  EXPECT_EQ(e.text, "a");
  EXPECT_EQ(e.tokens, (std::vector<TokenId>{1, 0}));
  EXPECT_EQ(e.choice, 2u);
  EXPECT_EQ(e.output_tokens, 2u);
  EXPECT_FALSE(e.stop_token.has_value());
}

TEST_F(AcceptTest, StopStringWinsOverLengthAndIsCutOut) {
  Request r = fake_request({1}, 3);
  r.stop = {"zz", "bc"};
  start(r);
  EXPECT_EQ(accept(1), FinishReason::kNone);
  EXPECT_EQ(accept(2), FinishReason::kNone);
  EXPECT_EQ(choice_->event.text, "a") << "b may begin a stop string";
  EXPECT_EQ(accept(3), FinishReason::kStop);
  EXPECT_EQ(choice_->event.text, "a");
  EXPECT_EQ(choice_->event.stop_string, "bc");
}

TEST_F(AcceptTest, HeldBackTextIsReleasedAtAnEnd) {
  Request r = fake_request({1}, 2);
  r.stop = {"bcd"};
  start(r);
  accept(2);
  EXPECT_EQ(accept(3), FinishReason::kLength);
  EXPECT_EQ(choice_->event.text, "bc");
}

TEST_F(AcceptTest, StopTokenIsNamedAndItsTextDropped) {
  Request r = fake_request({1}, 1);
  r.sampling.stop_token_ids = {4};
  start(r);
  EXPECT_EQ(accept(4), FinishReason::kStop);
  EXPECT_EQ(choice_->event.stop_token, 4);
  EXPECT_EQ(choice_->event.text, "");
  r.include_stop = true;
  start(r);
  EXPECT_EQ(accept(4), FinishReason::kStop);
  EXPECT_EQ(choice_->event.text, "d");
}

TEST_F(AcceptTest, ContextEndsAsLength) {
  start(fake_request({1}, 1000));
  for (int i = 0; i < 12; ++i) EXPECT_EQ(accept(1), FinishReason::kNone);
  EXPECT_EQ(accept(1), FinishReason::kLength);  // 3 + 13 = 16
}

TEST_F(AcceptTest, IgnoredEndTokenGoesOn) {
  Request r = fake_request({1}, 3);
  r.sampling.ignore_eos = true;
  start(r);
  EXPECT_EQ(accept(0), FinishReason::kNone);
  EXPECT_EQ(accept(1), FinishReason::kNone);
}

TEST_F(AcceptTest, LogprobsOnlyWhenAsked) {
  start(fake_request({1}, 3));
  accept(1);
  EXPECT_TRUE(choice_->event.logprobs.empty());
  Request r = fake_request({1}, 3);
  r.sampling.logprobs = 0;
  start(r);
  accept(1);
  ASSERT_EQ(choice_->event.logprobs.size(), 1u);
  EXPECT_EQ(choice_->event.logprobs[0].logprob, -0.5f);
}

}  // namespace
}  // namespace kvasir
