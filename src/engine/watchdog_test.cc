#include "engine/watchdog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <csignal>
#include <mutex>
#include <thread>

#include "engine/core_rig.h"

namespace kvasir {

// Brings about what should not happen.
struct EngineCorePeer {
  static BlockPool& pool(EngineCore& core) { return core.pool_; }
};

namespace {

using testing::HasSubstr;

bool eventually(const std::function<bool()>& condition) {
  for (int i = 0; i < 10000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

class StalledStep : public testing::Test {
 protected:
  StalledStep() : tokenizer_(48) {
    model_.before_forward = [this] {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [this] { return !shut_; });
    };
    config_.block_size = 16;
    config_.max_num_batched_tokens = 64;
    config_.max_model_len = 400;
    config_.kv_bytes = 60 * KvLayout::make(model_.config().kv_layers(), 16).value().block_bytes();
    config_.stall_seconds = 0.1;
    engine_ = Engine::start(config_, model_, tokenizer_, kernel_table(best_isa()), threads_).value();
  }
  ~StalledStep() override { set_shut(false); }
  void set_shut(bool shut) {
    const std::lock_guard lock(mutex_);
    shut_ = shut;
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  bool shut_ = false;
  FakeLm model_{{}};
  FakeTokenizer tokenizer_;
  ThreadPool threads_{2};
  EngineConfig config_;
  std::unique_ptr<Engine> engine_;
};

TEST_F(StalledStep, IsSeenSaidAndOver) {
  EXPECT_TRUE(engine_->health().ok());
  set_shut(true);
  Request asked = fake_request(fake_prompt(40, 1), 6);
  asked.external_id = "req_slow";
  std::atomic<bool> ended = false;
  std::vector<TokenId> tokens;
  ASSERT_TRUE(engine_
                  ->submit(asked,
                           [&](TokenEvent&& e) {
                             tokens.insert(tokens.end(), e.tokens.begin(), e.tokens.end());
                             ended = e.finish != FinishReason::kNone;
                           })
                  .ok());
  ASSERT_TRUE(eventually([&] { return !engine_->health().ok(); }));
  const Status health = engine_->health();
  EXPECT_EQ(health.code(), ErrorCode::kUnavailable);
  EXPECT_THAT(health.message(), HasSubstr("computing a step"));
  EXPECT_THAT(health.message(), HasSubstr("1 running"));
  EXPECT_EQ(engine_->stats().stalls_seen, 1u);
  const auto refused = engine_->submit(asked, [](TokenEvent&&) {});
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.status().code(), ErrorCode::kUnavailable);
  EXPECT_THAT(refused.message(), HasSubstr("has not moved"));
  set_shut(false);
  ASSERT_TRUE(eventually([&] { return ended.load() && engine_->health().ok(); }));
  EXPECT_EQ(tokens, expected_answer(asked, 0, {}, tokenizer_, 400).tokens);
  EXPECT_EQ(engine_->stats().stalls_seen, 1u);
  EXPECT_TRUE(engine_->submit(asked, [](TokenEvent&&) {}).ok());
}

TEST_F(StalledStep, IdleIsNotStalled) {
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_TRUE(engine_->health().ok());
  std::atomic<int> ended = 0;
  for (int i = 0; i < 3; ++i) {
    const auto sink = [&](TokenEvent&& e) { ended += e.finish != FinishReason::kNone; };
    ASSERT_TRUE(engine_->submit(fake_request({1, 2}, 3), sink).ok());
    ASSERT_TRUE(eventually([&] { return ended == i + 1; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(150));
    EXPECT_TRUE(engine_->health().ok());
  }
  EXPECT_EQ(engine_->stats().stalls_seen, 0u);
}

TEST(EngineTrace, SaysWhatTheEngineIsAt) {
  EngineTrace trace;
  trace.enter(EngineTrace::Phase::kComputing, 100);
  trace.describe([](EngineTrace::State& s) {
    s.running = 3;
    s.waiting = 2;
    s.rows = 256;
    s.blocks_free = 7;
    s.predicted = 0.5;
    s.listed = 1;
    s.work[0] = {
        .request = 9, .choice = 1, .rows = 250, .computed = 512, .known = 900, .name = {'r', 'e', 'q'}};
  });
  EXPECT_EQ(trace_summary(trace.state(), 112.5), "computing a step for 12.5 s; 3 running, 2 waiting");
  EXPECT_EQ(
      trace_details(trace.state()),
      "256 rows in the step, 0 KV blocks used, 0 cached, 7 free; it was to take 0.500 s; request 9 (req) "
      "choice 1: 512 of 900 tokens computed, 250 rows");
}

// A step that was predicted to be long is not a stall.
TEST(Watchdog, WaitsForAStepThatWasPredictedToBeLong) {
  EngineTrace trace;
  trace.enter(EngineTrace::Phase::kComputing, monotonic_seconds());
  trace.move(monotonic_seconds());
  trace.describe([](EngineTrace::State& s) { s.predicted = 1000; });
  const Watchdog dog({.seconds = 0.02}, trace, [] { return 0.0; });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(dog.health().ok());
  trace.describe([](EngineTrace::State& s) { s.predicted = 0; });
  EXPECT_TRUE(eventually([&] { return !dog.health().ok(); }));
}

// The thread sleeps although a request lies there: what a lost wake-up looks like.
TEST(Watchdog, SeesWorkThatNobodyTakes) {
  EngineTrace trace;
  trace.enter(EngineTrace::Phase::kIdle, monotonic_seconds() - 100);
  trace.move(monotonic_seconds() - 100);
  std::atomic<double> since = 0;
  const Watchdog dog({.seconds = 0.05}, trace, [&] { return since.load(); });
  std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(dog.health().ok());
  since = monotonic_seconds();
  EXPECT_TRUE(eventually([&] { return !dog.health().ok(); }));
  EXPECT_THAT(dog.health().message(), HasSubstr("waiting for work"));
}

// A paused container or a suspended machine: everything stops for far longer than the bound, and goes on.
TEST(Watchdog, APausedProcessIsNotStalled) {
  EngineTrace trace;
  trace.enter(EngineTrace::Phase::kComputing, monotonic_seconds());
  trace.move(monotonic_seconds());
  const Watchdog dog({.seconds = 1}, trace, [] { return 0.0; });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const pid_t self = getpid();
  const pid_t waker = fork();
  ASSERT_GE(waker, 0);
  if (waker == 0) {
    kill(self, SIGSTOP);
    usleep(2'000'000);
    kill(self, SIGCONT);
    _exit(0);
  }
  const double begin = monotonic_seconds();
  ASSERT_EQ(waitpid(waker, nullptr, 0), waker);
  ASSERT_GT(monotonic_seconds() - begin, 1.9);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_TRUE(dog.health().ok()) << dog.health().message();
  EXPECT_EQ(dog.stalls(), 0u);
  EXPECT_TRUE(eventually([&] { return !dog.health().ok(); })) << "a stall after it is still seen";
}

// An engine whose pool has lost its blocks, so that no step can be planned.
class StalledScheduler : public testing::Test {
 protected:
  StalledScheduler() : rig(options()) {
    while (pool().free() > 0) lost_.push_back(pool().take());
  }
  void give_back() {
    for (const BlockId id : lost_) pool().release(id);
  }

  CoreRig rig;

 private:
  static RigOptions options() {
    RigOptions options;
    options.blocks = 40;
    options.check_invariants = false;  // the pool and the tables will not agree
    return options;
  }
  BlockPool& pool() { return EngineCorePeer::pool(*rig.core); }

  std::vector<BlockId> lost_;
};

TEST_F(StalledScheduler, AdmitsAnewWhereThatHelps) {
  const Request first = fake_request(fake_prompt(100, 1), 8), second = fake_request(fake_prompt(100, 2), 8);
  const uint64_t a = rig.add(first), b = rig.add(second);
  rig.core->step();
  give_back();
  rig.run();
  EXPECT_EQ(rig.core->update_stats().stalls_resolved, 1u);
  EXPECT_EQ(rig.core->update_stats().stalls_failed_requests, 0u);
  rig.expect_right(a, first);
  rig.expect_right(b, second);
}

TEST_F(StalledScheduler, EndsTheOldestWithTheNumbersWhereNothingHelps) {
  const Request asked = fake_request(fake_prompt(100, 1), 8);
  const uint64_t a = rig.add(asked), b = rig.add(asked);
  for (int i = 0; i < 2; ++i) rig.core->step();
  EXPECT_EQ(rig.core->update_stats().stalls_resolved, 1u);
  EXPECT_EQ(rig.core->update_stats().stalls_failed_requests, 1u);
  const CoreRig::Answer& failed = rig.answers[{a, 0}];
  EXPECT_EQ(failed.finish, FinishReason::kError);
  EXPECT_THAT(failed.error.message(), HasSubstr("needs 7 KV blocks, and 0 of 40"));
  EXPECT_EQ(rig.core->scheduler().waiting().size(), 1u);
  give_back();
  rig.run();
  rig.expect_right(b, asked);
}

}  // namespace
}  // namespace kvasir
