// The server over the real engine and a model that is nothing but its KV: who is served whose cached
// prefixes, and what the usage says of it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/fake_model.h"
#include "server/api_fixture.h"
#include "server/cache_domain.h"

namespace kvasir::testing {
namespace {

constexpr uint32_t kVocab = 259;  // the byte tokenizer's

class IsolationTest : public ApiServerTest {
 protected:
  IsolationTest() : lm_({.vocab = kVocab}) {
    EngineConfig config;
    config.block_size = 16;
    config.max_model_len = 400;
    config.max_num_batched_tokens = 64;
    config.kv_bytes = 200 * KvLayout::make(lm_.config().kv_layers(), 16).value().block_bytes();
    config.check_invariants = true;
    real_ = Engine::start(config, lm_, tokenizer_, kernel_table(best_isa()), threads_).value();
    model_.engine = real_.get();
  }
  ~IsolationTest() override {
    if (server_) server_->stop();
  }

  struct Served {
    int64_t cached = 0;
    int64_t prompt = 0;
    std::string text;
  };
  Served ask(const std::string& header, const std::string& salt = "", const std::string& prompt = kPrompt) {
    const std::string member = salt.empty() ? "" : R"(,"cache_salt":")" + salt + '"';
    const auto answer =
        post("/v1/completions",
             R"({"prompt":")" + prompt + R"(","max_tokens":4,"temperature":0)" + member + "}", header);
    EXPECT_EQ(answer.status, 200) << answer.body;
    const auto body = parsed(answer.body);
    const auto& usage = body.at("usage");
    return {usage.at("prompt_tokens_details").at("cached_tokens").as_int64(),
            usage.at("prompt_tokens").as_int64(),
            std::string(body.at("choices").at(0).at("text").as_string())};
  }
  static std::string key(const std::string& k) { return "Authorization: Bearer " + k + "\r\n"; }

  inline static const std::string kPrompt = std::string(50, 'p') + std::string(50, 'q');

  FakeLm lm_;
  ThreadPool threads_{2};
  std::unique_ptr<Engine> real_;
};

TEST_F(IsolationTest, EachKeyHasItsOwnCache) {
  config_.access.api_keys = {"alice", "bob"};
  start();
  const Served first = ask(key("alice"));
  EXPECT_EQ(first.cached, 0);
  EXPECT_EQ(first.prompt, 100);
  EXPECT_EQ(ask(key("bob")).cached, 0) << "another key's prefix was served";
  EXPECT_EQ(ask(key("alice")).cached, 96);
  EXPECT_EQ(ask("X-Api-Key: bob\r\n").cached, 96);
  EXPECT_EQ(ask(key("bob")).text, first.text);
  EXPECT_EQ(real_->stats().prefix_hits, 3 * 96u);
  EXPECT_EQ(real_->stats().prefix_queries, 5 * 100u);
}

TEST_F(IsolationTest, ASaltDividesWhatAKeyShares) {
  config_.access.api_keys = {"alice", "bob"};
  start();
  EXPECT_EQ(ask(key("alice")).cached, 0);
  EXPECT_EQ(ask(key("alice"), "one").cached, 0);
  EXPECT_EQ(ask(key("bob"), "one").cached, 0);
  EXPECT_EQ(ask(key("alice"), "one").cached, 96);
  EXPECT_EQ(ask(key("alice"), "two").cached, 0);
}

TEST_F(IsolationTest, KeysShareOnPurpose) {
  config_.access.api_keys = {"alice", "bob"};
  config_.keys_share_cache = true;
  start();
  EXPECT_EQ(ask(key("alice")).cached, 0);
  EXPECT_EQ(ask(key("bob")).cached, 96);
  EXPECT_EQ(ask(key("bob"), "one").cached, 0);
  EXPECT_EQ(ask(key("alice"), "one").cached, 96);
}

TEST_F(IsolationTest, WithoutKeysOnlySaltsDivide) {
  start();
  EXPECT_EQ(ask("").cached, 0);
  EXPECT_EQ(ask("").cached, 96);
  EXPECT_EQ(ask(key("whatever")).cached, 96) << "a key that nobody asked for means nothing";
  EXPECT_EQ(ask("", "mine").cached, 0);
  EXPECT_EQ(ask("", "mine").cached, 96);
}

// Of a request's prompts and choices each token is counted once, as it was served.
TEST_F(IsolationTest, UsageAddsUpOverPrompts) {
  start();
  ask("");
  const std::string other(100, 'z');
  const auto answer =
      post("/v1/completions", R"({"prompt":[")" + kPrompt + R"(",")" + other + R"("],"n":2,"max_tokens":3})");
  ASSERT_EQ(answer.status, 200) << answer.body;
  const auto usage = parsed(answer.body).at("usage");
  EXPECT_EQ(usage.at("prompt_tokens").as_int64(), 200);
  EXPECT_EQ(usage.at("prompt_tokens_details").at("cached_tokens").as_int64(), 96);
}

TEST(CacheDomain, NoSaltNamesAnotherDomain) {
  EXPECT_EQ(cache_domain("", ""), "");
  const std::string alice = cache_domain("alice", "");
  EXPECT_EQ(alice.size(), 4 + 32u);
  EXPECT_EQ(alice.find("alice"), std::string::npos);
  EXPECT_NE(alice, cache_domain("bob", ""));
  // Not even who knows a domain's bytes can name it with a salt, with a key or without.
  EXPECT_NE(cache_domain("", alice), alice);
  EXPECT_NE(cache_domain("", alice.substr(4)), alice);
  EXPECT_NE(cache_domain("bob", alice), alice);
  EXPECT_NE(cache_domain("", "x"), cache_domain("x", ""));
  EXPECT_NE(cache_domain("alice", "x"), cache_domain("alice", "y"));
}

}  // namespace
}  // namespace kvasir::testing
