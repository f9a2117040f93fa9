#include "engine/kv_persist.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <thread>

#include "engine/core_rig.h"
#include "kvcache/kv_file_format.h"

namespace kvasir {
namespace {

namespace fs = std::filesystem;

// An engine over the fake model, which is nothing but its KV: one wrong byte of it shows in every token
// after.
class KvPersistTest : public testing::Test {
 protected:
  KvPersistTest() : tokenizer_(48) {
    fs::remove_all(folder_);
    config_.block_size = 16;
    config_.max_num_seqs = 8;
    config_.max_num_batched_tokens = 64;
    config_.max_model_len = 400;
    config_.check_invariants = true;
    config_.kv_persistence = {.model = "model 1", .max_bytes = 1 << 20, .interval_seconds = 0};
    set_blocks(60);
  }
  ~KvPersistTest() override {
    engine_.reset();
    fs::remove_all(folder_);
  }

  void set_blocks(uint32_t blocks) {
    model_ = std::make_unique<FakeLm>(options_);
    config_.kv_bytes = blocks * KvLayout::make(model_->config().kv_layers(), 16).value().block_bytes();
  }
  void start() {
    engine_.reset();
    engine_ = Engine::start(config_, *model_, tokenizer_, kernel_table(best_isa()), threads_, nullptr, {},
                            KvDirectory::open(folder_.string()).value())
                  .value();
  }

  // Runs a request, checks its answer against the model's own, and returns the tokens that were cached.
  uint32_t ask(const Request& request) {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<TokenId> tokens;
    uint32_t cached = 0;
    bool done = false;
    const auto id = engine_->submit(request, [&](TokenEvent&& e) {
      const std::lock_guard lock(mutex);
      tokens.insert(tokens.end(), e.tokens.begin(), e.tokens.end());
      cached = e.cached_tokens;
      done = e.finish != FinishReason::kNone;
      if (done) changed.notify_one();
    });
    EXPECT_TRUE(id.ok());
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return done; });
    EXPECT_EQ(tokens, expected_answer(request, 0, options_, tokenizer_, 400).tokens);
    return cached;
  }
  EngineStats::Persistence stats() { return engine_->stats().persistence; }
  bool eventually(const std::function<bool()>& condition) {
    for (int i = 0; i < 5000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  void flip(uint64_t at) {
    std::fstream file(folder_ / "prefixes.kv", std::ios::in | std::ios::out | std::ios::binary);
    file.seekg(static_cast<std::streamoff>(at));
    const char byte = static_cast<char>(file.get());
    file.seekp(static_cast<std::streamoff>(at));
    file.put(static_cast<char>(byte ^ 1));
  }

  const fs::path folder_ = fs::temp_directory_path() / ("kvasir_persist_" + std::to_string(::getpid()));
  FakeLm::Options options_;
  std::unique_ptr<FakeLm> model_;
  FakeTokenizer tokenizer_;
  ThreadPool threads_{2};
  EngineConfig config_;
  std::unique_ptr<Engine> engine_;
};

const Request kAsked = fake_request(fake_prompt(100, 1), 12);

TEST_F(KvPersistTest, ARestartedEngineKnowsItsPrefixes) {
  start();
  EXPECT_EQ(ask(kAsked), 0u);
  EXPECT_TRUE(stats().enabled);
  start();
  EXPECT_EQ(stats().restored_blocks, stats().restored_tokens / 16);
  EXPECT_GE(stats().restored_tokens, 96u);
  EXPECT_EQ(ask(kAsked), 96u);
  Request other = kAsked;
  other.prompt[40] = other.prompt[40] % 47 + 1;
  other.prompt[41] = other.prompt[41] % 47 + 1;
  EXPECT_EQ(ask(other), 32u);
  EXPECT_EQ(model_->faults, 0u);
  // What is new is added; where nothing is, the file is not written again.
  const fs::path file = folder_ / "prefixes.kv";
  const auto size = fs::file_size(file);
  start();
  EXPECT_GT(fs::file_size(file), size);
  const auto long_ago = fs::last_write_time(file) - std::chrono::hours(1);
  fs::last_write_time(file, long_ago);
  start();
  EXPECT_EQ(fs::last_write_time(file), long_ago);
  EXPECT_EQ(ask(other), 96u);
}

TEST_F(KvPersistTest, WindowsToo) {
  options_.windows = {0, 32, 32, 0, 20};
  set_blocks(300);
  start();
  EXPECT_EQ(ask(kAsked), 0u);
  start();
  EXPECT_EQ(ask(kAsked), 96u);
  EXPECT_EQ(model_->faults, 0u);
}

TEST_F(KvPersistTest, SaltsStayApartOverARestart) {
  Request alice = kAsked, bob = kAsked;
  alice.cache_salt = "alice's";
  bob.cache_salt = "bob's";
  start();
  ask(alice);
  start();
  EXPECT_EQ(ask(bob), 0u);
  EXPECT_EQ(ask(kAsked), 0u);
  EXPECT_EQ(ask(alice), 96u);
  engine_.reset();
  std::ifstream in(folder_ / "prefixes.kv", std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(in), {});
  EXPECT_GT(bytes.size(), 4096u);
  EXPECT_EQ(bytes.find("alice"), std::string::npos);
}

TEST_F(KvPersistTest, AnotherModelsFileIsLeftAloneUntilTheNextSave) {
  start();
  ask(kAsked);
  engine_.reset();
  config_.kv_persistence.model = "model 2";
  start();
  EXPECT_EQ(stats().restored_tokens, 0u);
  EXPECT_EQ(ask(kAsked), 0u);
  start();
  EXPECT_EQ(ask(kAsked), 96u);
}

TEST_F(KvPersistTest, DamageIsDroppedAndNeverServed) {
  start();
  ask(kAsked);
  engine_.reset();
  const uint64_t block = config_.kv_bytes / 60;
  flip(kKvPayloadOffset + 3 * block + 7);  // the fourth block of the prefix
  start();
  EXPECT_EQ(stats().restored_tokens, 48u);
  EXPECT_GE(stats().dropped_blocks, 3u);
  EXPECT_EQ(ask(kAsked), 48u);
  engine_.reset();
  flip(20);
  start();
  EXPECT_EQ(stats().restored_tokens, 0u);
  EXPECT_EQ(ask(kAsked), 0u);
  engine_.reset();
  fs::resize_file(folder_ / "prefixes.kv", 5000);
  start();
  EXPECT_EQ(ask(kAsked), 0u);
}

TEST_F(KvPersistTest, ASmallerPoolTakesWhatFits) {
  start();
  ask(kAsked);
  engine_.reset();
  set_blocks(4);
  config_.max_model_len = 64;
  start();
  EXPECT_EQ(stats().restored_blocks, 4u);
  EXPECT_EQ(engine_->stats().blocks_cached, 4u);
}

TEST_F(KvPersistTest, TheFileKeepsToItsBound) {
  config_.kv_persistence.max_bytes = 8000;
  start();
  for (uint32_t i = 0; i < 6; ++i) ask(fake_request(fake_prompt(100, i), 2));
  start();
  EXPECT_LE(fs::file_size(folder_ / "prefixes.kv"), 8000u);
  EXPECT_GT(stats().restored_blocks, 0u);
  EXPECT_GT(ask(fake_request(fake_prompt(100, 5), 2)), 0u) << "the last one used";
  EXPECT_EQ(ask(fake_request(fake_prompt(100, 0), 2)), 0u);
}

// While the engine lives, so that a crash loses little: what is in the file then serves another engine.
TEST_F(KvPersistTest, SavesInTheBackground) {
  config_.kv_persistence.interval_seconds = 0.02;
  start();
  ask(kAsked);
  ASSERT_TRUE(eventually([&] { return stats().saves > 0 && stats().saved_blocks >= 6; }));
  const fs::path crashed = folder_.string() + "_crashed";
  fs::remove_all(crashed);
  fs::create_directories(crashed);
  fs::copy_file(folder_ / "prefixes.kv", crashed / "prefixes.kv");
  engine_ = Engine::start(config_, *model_, tokenizer_, kernel_table(best_isa()), threads_, nullptr, {},
                          KvDirectory::open(crashed.string()).value())
                .value();
  EXPECT_EQ(ask(kAsked), 96u);
  engine_.reset();
  fs::remove_all(crashed);
}

// Blocks are given up, taken again and written while saves go on; what a restart then finds is right.
TEST_F(KvPersistTest, SavesUnderPressureNeverMixContents) {
  config_.kv_persistence.interval_seconds = 0.001;
  start();
  for (uint32_t round = 0; round < 5; ++round) {
    std::vector<std::thread> clients;
    for (uint32_t c = 0; c < 4; ++c) {
      clients.emplace_back([&, c] {
        for (uint32_t i = 0; i < 20; ++i)
          ask(fake_request(fake_prompt(60 + 17 * c, (round * 7 + c * 3 + i) % 9, 40), 5, 0.7f, i));
      });
    }
    for (std::thread& t : clients) t.join();
    EXPECT_TRUE(eventually([&] { return stats().saves > 0; }));
    start();
    EXPECT_EQ(stats().dropped_blocks, 0u);
    EXPECT_GT(stats().restored_blocks, 20u);
  }
  EXPECT_EQ(model_->faults, 0u);
}

TEST_F(KvPersistTest, AnEndInTheMiddleOfASaveIsNoFault) {
  config_.kv_persistence.interval_seconds = 0.0001;
  for (uint32_t i = 0; i < 20; ++i) {
    start();
    ask(fake_request(fake_prompt(100, i), 2));
  }
  EXPECT_EQ(stats().failures, 0u);
}

TEST_F(KvPersistTest, ADirectoryThatIsGoneCostsTheSaveOnly) {
  config_.kv_persistence.interval_seconds = 0.02;
  start();
  fs::remove_all(folder_);
  ask(kAsked);
  ASSERT_TRUE(eventually([&] { return stats().failures > 0; }));
  EXPECT_EQ(stats().saves, 0u);
  EXPECT_EQ(ask(kAsked), 96u);
}

}  // namespace
}  // namespace kvasir
