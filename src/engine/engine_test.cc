#include "engine/engine.h"

#include <gtest/gtest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "engine/core_rig.h"

namespace kvasir {
namespace {

using std::chrono::milliseconds;

// Collects a request's events; safe from any thread.
class Inbox {
 public:
  TokenSink sink() {
    return [this](TokenEvent&& e) {
      const std::lock_guard lock(mutex_);
      tokens_.insert(tokens_.end(), e.tokens.begin(), e.tokens.end());
      text_ += e.text;
      ++events_;
      if (e.finish != FinishReason::kNone) finishes_.push_back(e.finish);
      changed_.notify_all();
    };
  }
  FinishReason wait(size_t choices = 1) {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(
        changed_.wait_for(lock, std::chrono::seconds(60), [&] { return finishes_.size() >= choices; }));
    return finishes_.empty() ? FinishReason::kNone : finishes_.back();
  }
  std::vector<TokenId> tokens() {
    const std::lock_guard lock(mutex_);
    return tokens_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<TokenId> tokens_;
  std::string text_;
  uint32_t events_ = 0;
  std::vector<FinishReason> finishes_;
};

// Holds the engine's thread inside a step.
class Gate {
 public:
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
  }
  void open() {
    const std::lock_guard lock(mutex_);
    closed_ = false;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    held_ = closed_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !closed_; });
    held_ = false;
  }
  void wait_until_held() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return held_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool closed_ = false, held_ = false;
};

class EngineTest : public testing::Test {
 protected:
  EngineTest() : model_({}), tokenizer_(48) {
    model_.before_forward = [this] { gate_.pass(); };
    config_.block_size = 16;
    config_.max_num_seqs = 8;
    config_.max_num_batched_tokens = 64;
    config_.max_model_len = 400;
    config_.kv_bytes = 60 * KvLayout::make(model_.config().kv_layers(), 16).value().block_bytes();
    config_.check_invariants = true;
  }
  void start() {
    engine_ = Engine::start(config_, model_, tokenizer_, kernel_table(best_isa()), threads_).value();
  }
  void wait_for_idle() {
    for (int i = 0; i < 2000 && engine_->stats().running + engine_->stats().waiting > 0; ++i)
      std::this_thread::sleep_for(milliseconds(1));
  }

  Gate gate_;
  FakeLm model_;
  FakeTokenizer tokenizer_;
  ThreadPool threads_{2};
  EngineConfig config_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(EngineTest, AnswersFromManyThreads) {
  start();
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (uint32_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (uint32_t i = 0; i < 20; ++i) {
        const Request r = fake_request(fake_prompt(5 + i, t, 4), 20, 0.8f, t * 100 + i);
        Inbox inbox;
        if (!engine_->submit(r, inbox.sink()).ok() || inbox.wait() == FinishReason::kNone ||
            inbox.tokens() != expected_answer(r, 0, {}, tokenizer_, 400).tokens)
          ++wrong;
      }
    });
  }
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
  wait_for_idle();
  EXPECT_EQ(engine_->stats().blocks_used, 0u);
}

TEST_F(EngineTest, FullQueueRefusesOneMoreAndRecovers) {
  config_.max_queued_requests = 3;
  start();
  gate_.close();
  std::vector<Inbox> inboxes(8);
  ASSERT_TRUE(engine_->submit(fake_request({1}, 4), inboxes[0].sink()).ok());
  gate_.wait_until_held();  // it is being computed; it left the queue when its step ends
  ASSERT_TRUE(engine_->submit(fake_request({1}, 4), inboxes[1].sink()).ok());
  ASSERT_TRUE(engine_->submit(fake_request({1}, 4), inboxes[2].sink()).ok());
  const Result<RequestId> refused = engine_->submit(fake_request({1}, 4), inboxes[3].sink());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), ErrorCode::kResourceExhausted);
  gate_.open();
  for (int i = 0; i < 3; ++i) inboxes[static_cast<size_t>(i)].wait();
  wait_for_idle();
  EXPECT_TRUE(engine_->submit(fake_request({1}, 4), inboxes[4].sink()).ok());
  inboxes[4].wait();
}

// A queued request's cancel ends that one, not the one that runs.
TEST_F(EngineTest, CancelIsPerRequest) {
  config_.max_num_seqs = 1;
  start();
  gate_.close();
  Inbox running, queued;
  Request long_one = fake_request({1, 2}, 100);
  long_one.sampling.ignore_eos = true;
  ASSERT_TRUE(engine_->submit(long_one, running.sink()).ok());
  gate_.wait_until_held();
  const RequestId id = engine_->submit(fake_request({3}, 5), queued.sink()).value();
  engine_->cancel(id);
  gate_.open();
  EXPECT_EQ(queued.wait(), FinishReason::kCancelled);
  EXPECT_EQ(running.wait(), FinishReason::kLength);
  EXPECT_EQ(running.tokens(), expected_answer(long_one, 0, {}, tokenizer_, 400).tokens);
}

TEST_F(EngineTest, CancelledWithinOneStep) {
  start();
  Inbox inbox;
  Request r = fake_request({1, 2}, 390);
  r.sampling.ignore_eos = true;
  // The engine's own thread closes the gate, so that the request cannot end before it is shut.
  int events = 0;
  const TokenSink to_inbox = inbox.sink();
  const TokenSink sink = [&](TokenEvent&& event) {
    if (++events == 3) gate_.close();
    to_inbox(std::move(event));
  };
  const RequestId id = engine_->submit(r, sink).value();
  gate_.wait_until_held();
  const uint64_t steps = model_.steps;  // the thread stands before this step's work
  engine_->cancel(id);
  gate_.open();
  EXPECT_EQ(inbox.wait(), FinishReason::kCancelled);
  wait_for_idle();
  engine_.reset();
  EXPECT_LE(model_.steps, steps + 1);
}

TEST_F(EngineTest, DrainFinishesWhatRunsAndTakesNothingNew) {
  start();
  gate_.close();
  Inbox inbox;
  ASSERT_TRUE(engine_->submit(fake_request({1, 2}, 30), inbox.sink()).ok());
  EXPECT_FALSE(engine_->drained());
  engine_->drain();
  const Result<RequestId> late = engine_->submit(fake_request({1}, 3), inbox.sink());
  ASSERT_FALSE(late.ok());
  EXPECT_EQ(late.status().code(), ErrorCode::kUnavailable);
  EXPECT_FALSE(engine_->drained());
  gate_.open();
  inbox.wait();
  for (int i = 0; i < 2000 && !engine_->drained(); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(engine_->drained());
}

TEST_F(EngineTest, EndOfTheEngineEndsEveryRequest) {
  start();
  gate_.close();
  std::vector<Inbox> inboxes(20);
  Request r = fake_request({1, 2}, 300);
  r.sampling.ignore_eos = true;
  r.n = 2;
  for (Inbox& inbox : inboxes) ASSERT_TRUE(engine_->submit(r, inbox.sink()).ok());
  std::thread opener([&] {
    std::this_thread::sleep_for(milliseconds(20));
    gate_.open();
  });
  engine_.reset();
  opener.join();
  for (Inbox& inbox : inboxes) EXPECT_EQ(inbox.wait(2), FinishReason::kCancelled);
}

TEST_F(EngineTest, ImpossibleRequestsAreRefusedWithBothNumbers) {
  start();
  const auto message = [&](const Request& r) {
    Inbox inbox;
    const Result<RequestId> result = engine_->submit(r, inbox.sink());
    EXPECT_FALSE(result.ok());
    EXPECT_EQ(result.status().code(), ErrorCode::kInvalidArgument);
    return result.ok() ? std::string() : result.message();
  };
  EXPECT_NE(message(fake_request({}, 5)).find("empty"), std::string::npos);
  const std::string long_prompt = message(fake_request(fake_prompt(1000, 1), 5));
  EXPECT_NE(long_prompt.find("1000"), std::string::npos);
  EXPECT_NE(long_prompt.find("400"), std::string::npos);
  EXPECT_NE(message(fake_request({1, 48}, 5)).find("48"), std::string::npos);
  EXPECT_NE(message(fake_request({-1}, 5)).find("-1"), std::string::npos);
  Request many = fake_request({1}, 5);
  many.n = 9;
  EXPECT_NE(message(many).find("9"), std::string::npos);
  many.n = 0;
  EXPECT_NE(message(many), "");
  Request stops = fake_request({1}, 5);
  stops.stop = {""};
  EXPECT_NE(message(stops), "");
  // The longest prompt that fits does run.
  Inbox inbox;
  ASSERT_TRUE(engine_->submit(fake_request(fake_prompt(399, 1), 5), inbox.sink()).ok());
  inbox.wait();
  EXPECT_EQ(inbox.tokens().size(), 1u);
}

// A prompt that fits the model's context but not the pool would wait for ever.
TEST_F(EngineTest, PoolBoundsTheContext) {
  config_.kv_bytes /= 10;  // 6 blocks
  start();
  EXPECT_EQ(engine_->config().max_model_len, 96u);
  EXPECT_EQ(engine_->kv_token_capacity(), 96u);
  Inbox inbox;
  EXPECT_FALSE(engine_->submit(fake_request(fake_prompt(200, 1), 5), inbox.sink()).ok());
  ASSERT_TRUE(engine_->submit(fake_request(fake_prompt(90, 1), 50), inbox.sink()).ok());
  EXPECT_NE(inbox.wait(), FinishReason::kNone);
}

TEST_F(EngineTest, ImpossibleConfigurationsAreRefused) {
  const auto refused = [&](auto change) {
    EngineConfig config = config_;
    change(config);
    return !Engine::start(config, model_, tokenizer_, kernel_table(best_isa()), threads_).ok();
  };
  EXPECT_TRUE(refused([](EngineConfig& c) { c.kv_bytes = 100; }));
  EXPECT_TRUE(refused([](EngineConfig& c) { c.block_size = 20; }));
  EXPECT_TRUE(refused([](EngineConfig& c) { c.max_model_len = 100000; }));
  EXPECT_TRUE(refused([](EngineConfig& c) { c.max_num_seqs = 0; }));
  EXPECT_TRUE(refused([](EngineConfig& c) { c.max_num_batched_tokens = 0; }));
  EXPECT_FALSE(refused([](EngineConfig&) {}));
}

// Token 0 is the only one that ends a text here.
// How many run at once and how much is kept for them are two settings.
TEST_F(EngineTest, SlotsAndPoolAreSettingsOfTheirOwn) {
  config_.max_model_len = 0;
  for (const uint32_t slots : {1u, 3u, 8u}) {
    config_.max_num_seqs = slots;
    start();
    EXPECT_EQ(engine_->kv_token_capacity(), 960u) << slots;
    EXPECT_EQ(engine_->config().max_model_len, 960u) << "one may have it all";
    EXPECT_EQ(engine_->stats().blocks_total, 60u);
    std::vector<Inbox> inboxes(4);
    for (uint32_t i = 0; i < 4; ++i)
      ASSERT_TRUE(engine_->submit(fake_request(fake_prompt(100, i), 20), inboxes[i].sink()).ok());
    for (Inbox& inbox : inboxes) EXPECT_NE(inbox.wait(), FinishReason::kNone);
    engine_.reset();
  }
}

TEST_F(EngineTest, MasksMustLeaveATokenToChoose) {
  start();
  const auto refused_about = [&](const auto& change) {
    Request r = fake_request({1}, 5);
    change(r.sampling);
    Inbox inbox;
    const Result<RequestId> result = engine_->submit(r, inbox.sink());
    if (result.ok()) inbox.wait();
    return result.ok() ? std::string() : result.status().field();
  };
  using Allowed = std::vector<TokenId>;
  EXPECT_EQ(refused_about([](SamplingParams& p) { p.allowed_tokens = Allowed{0}, p.ignore_eos = true; }),
            "allowed_token_ids");
  EXPECT_EQ(refused_about([](SamplingParams& p) {
              p.allowed_tokens = Allowed{0, 7}, p.stop_token_ids = {7}, p.min_tokens = 2;
            }),
            "allowed_token_ids");
  EXPECT_EQ(refused_about([](SamplingParams& p) { p.allowed_tokens = Allowed{0}; }), "");
  EXPECT_EQ(refused_about([](SamplingParams& p) { p.allowed_tokens = Allowed{0, 7}, p.min_tokens = 2; }), "");
}

TEST_F(EngineTest, TenThousandShortRequestsLeaveNothingBehind) {
  config_.check_invariants = false;
  start();
  std::atomic<uint32_t> ended = 0;
  for (uint32_t i = 0; i < 10000; ++i) {
    Request r = fake_request({static_cast<TokenId>(1 + i % 40), 2, 3}, 1 + i % 3, 1.0f, i);
    r.cache_salt = "user " + std::to_string(i);
    for (;;) {
      const Result<RequestId> id =
          engine_->submit(r, [&](TokenEvent&& e) { ended += e.finish != FinishReason::kNone; });
      if (id.ok()) {
        if (i % 5 == 0) engine_->cancel(id.value());
        break;
      }
      ASSERT_EQ(id.status().code(), ErrorCode::kResourceExhausted);
      std::this_thread::sleep_for(milliseconds(1));
    }
  }
  for (int i = 0; i < 20000 && ended < 10000; ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_EQ(ended, 10000u);
  engine_->drain();
  for (int i = 0; i < 2000 && !engine_->drained(); ++i) std::this_thread::sleep_for(milliseconds(1));
  EXPECT_TRUE(engine_->drained());
  const EngineStats stats = engine_->stats();
  EXPECT_EQ(stats.blocks_used, 0u);
  EXPECT_EQ(stats.running + stats.waiting, 0u);
  EXPECT_EQ(stats.finished_stop + stats.finished_length + stats.finished_abort, 10000u);
}

TEST_F(EngineTest, StatsNeverWaitForAStep) {
  start();
  gate_.close();
  Inbox inbox;
  ASSERT_TRUE(engine_->submit(fake_request({1, 2}, 3), inbox.sink()).ok());
  gate_.wait_until_held();
  EXPECT_EQ(engine_->stats().steps, 0u);  // answered although the step does not end
  EXPECT_FALSE(engine_->drained());
  gate_.open();
  inbox.wait();
  wait_for_idle();
  const EngineStats stats = engine_->stats();
  EXPECT_GT(stats.steps, 0u);
  EXPECT_EQ(stats.prompt_tokens, 2u);
  EXPECT_EQ(stats.time_to_first_token.counts.size(), stats.time_to_first_token.bounds.size() + 1);
  uint64_t firsts = 0;
  for (const uint64_t c : stats.time_to_first_token.counts) firsts += c;
  EXPECT_EQ(firsts, 1u);
}

}  // namespace
}  // namespace kvasir
