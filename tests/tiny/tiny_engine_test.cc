// The small models of every architecture behind the engine: the same answers one at a time, all at once, from
// cached prefixes, in a pool that is too small for all, and with guesses.

#include <gtest/gtest.h>

#include <condition_variable>
#include <cstring>
#include <mutex>

#include "engine/drafters.h"
#include "engine/llm.h"
#include "tests/model_runs.h"
#include "tests/tiny_fixture.h"

namespace kvasir {
namespace {

struct Answer {
  std::vector<TokenId> tokens;
  std::vector<float> logprobs;
  uint32_t cached = 0;
  FinishReason finish = FinishReason::kNone;

  bool operator==(const Answer& other) const {
    return tokens == other.tokens && logprobs.size() == other.logprobs.size() &&
           std::memcmp(logprobs.data(), other.logprobs.data(), logprobs.size() * sizeof(float)) == 0;
  }
};

// Some begin alike; half are sampled.
std::vector<Request> requests(uint32_t vocab) {
  std::vector<Request> out;
  const auto common = random_tokens(40, vocab, 1);
  for (uint32_t i = 0; i < 10; ++i) {
    Request r;
    r.prompt = random_tokens(5 + i * 3, vocab, 100 + i);
    if (i % 2 == 0) r.prompt.insert(r.prompt.begin(), common.begin(), common.end());
    r.sampling.temperature = i % 4 < 2 ? 0 : 0.9f;
    r.sampling.seed = i;
    r.sampling.max_tokens = 24;
    r.sampling.ignore_eos = true;
    r.sampling.logprobs = 1;
    out.push_back(std::move(r));
  }
  return out;
}

std::vector<Answer> answers_of(Engine& engine, const std::vector<Request>& list, bool at_once) {
  std::mutex mutex;
  std::condition_variable done;
  std::vector<Answer> answers(list.size());
  size_t unfinished = 0;
  for (size_t i = 0; i < list.size(); ++i) {
    {
      std::unique_lock lock(mutex);
      if (!at_once) done.wait(lock, [&] { return unfinished == 0; });
      ++unfinished;
    }
    const auto id = engine.submit(list[i], [&, i](TokenEvent&& e) {
      const std::lock_guard lock(mutex);
      Answer& a = answers[i];
      a.tokens.insert(a.tokens.end(), e.tokens.begin(), e.tokens.end());
      for (const SampledToken& t : e.logprobs) a.logprobs.push_back(t.logprob);
      a.cached = std::max(a.cached, e.cached_tokens);
      a.finish = e.finish;
      if (e.finish != FinishReason::kNone && --unfinished == 0) done.notify_all();
    });
    EXPECT_TRUE(id.ok()) << id.message();
  }
  std::unique_lock lock(mutex);
  done.wait(lock, [&] { return unfinished == 0; });
  return answers;
}

EngineConfig config(uint32_t sequences, bool cached) {
  EngineConfig c;
  c.max_num_seqs = sequences;
  c.max_model_len = 128;
  c.block_size = 16;
  c.max_num_batched_tokens = 48;
  c.kv_bytes = uint64_t{8} << 20;
  c.enable_prefix_caching = cached;
  c.check_invariants = true;
  return c;
}

struct Param {
  std::string model;
  KvType kv_type = KvType::kF16;
};

class EveryTinyEngine : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    Llm::Options options;
    options.threads = 2;
    options.engine = config(16, true);
    auto opened = Llm::open(tiny_path(GetParam().model + ".gguf"), options);
    ASSERT_TRUE(opened.ok()) << opened.message();
    llm_ = std::move(opened).value();
    list_ = requests(llm_->model().config().vocab_size);
    alone_ = answers_of(*start(config(1, false)), list_, false);
  }
  std::unique_ptr<Engine> start(EngineConfig c) {
    c.kv_type = GetParam().kv_type;
    auto engine = llm_->start_engine(c);
    EXPECT_TRUE(engine.ok()) << engine.message();
    return std::move(engine).value();
  }

  std::unique_ptr<Llm> llm_;
  std::vector<Request> list_;
  std::vector<Answer> alone_;
};

TEST_P(EveryTinyEngine, CompanyCacheAndPreemptionDoNotMatter) {
  EXPECT_EQ(alone_[0].tokens.size(), 24u);
  EXPECT_TRUE(answers_of(*start(config(16, false)), list_, true) == alone_) << "all at once";
  const auto engine = start(config(16, true));
  EXPECT_TRUE(answers_of(*engine, list_, true) == alone_) << "with the prefix cache";
  const auto again = answers_of(*engine, list_, false);
  EXPECT_TRUE(again == alone_) << "from the prefix cache";
  EXPECT_GT(again[0].cached, 0u);
  // In ever smaller pools, until one is too small for those that run.
  EngineConfig small = config(16, true);
  small.kv_type = GetParam().kv_type;
  const uint64_t block = llm_->kv_pool().bytes / llm_->sequences_of(16);
  uint64_t preemptions = 0;
  for (uint64_t blocks = 20; blocks > 0 && preemptions == 0; blocks -= 2) {
    small.kv_bytes = blocks * block;
    auto crowded = llm_->start_engine(small);
    ASSERT_TRUE(crowded.ok()) << "none of the pools preempted: " << crowded.message();
    EXPECT_TRUE(answers_of(**crowded, list_, true) == alone_) << "in a pool of " << blocks << " blocks";
    preemptions = (*crowded)->stats().preemptions;
  }
}

// Where the context is full the answer ends and says so: nothing is shifted out, and what was said until then
// is what a longer context gives.
TEST_P(EveryTinyEngine, AnAnswerEndsWithTheContext) {
  Request r;
  r.prompt = random_tokens(50, llm_->model().config().vocab_size, 7);
  r.sampling.temperature = 0;
  r.sampling.max_tokens = 60;
  r.sampling.ignore_eos = true;
  const Answer whole = answers_of(*start(config(1, true)), {r}, true)[0];
  ASSERT_EQ(whole.tokens.size(), 60u);
  EngineConfig shorter = config(1, true);
  shorter.max_model_len = 96;
  const Answer cut = answers_of(*start(shorter), {r}, true)[0];
  EXPECT_EQ(cut.finish, FinishReason::kLength);
  EXPECT_EQ(cut.tokens, std::vector<TokenId>(whole.tokens.begin(), whole.tokens.begin() + 46));
}

TEST_P(EveryTinyEngine, GuessesDoNotMatter) {
  const uint32_t layers = llm_->model().config().layers;
  for (const std::string& name : {std::string("ngram"), "layers=" + std::to_string(layers / 2)}) {
    EngineConfig c = config(16, true);
    c.speculation.drafters = parse_drafters(name).value();
    c.speculation.most = 5;
    c.speculation.always = true;
    EXPECT_TRUE(answers_of(*start(c), list_, true) == alone_) << name;
  }
}

std::string test_name(const testing::TestParamInfo<Param>& info) {
  return tiny_test_name({info.param.model, info.index});
}

std::vector<Param> all_models() {
  std::vector<Param> out;
  for (const std::string& name : tiny_names()) out.push_back({name});
  return out;
}

INSTANTIATE_TEST_SUITE_P(Tiny, EveryTinyEngine, testing::ValuesIn(all_models()), test_name);

// Heads with KV of their own, windows, experts, latent rows, and latent rows beside experts.
INSTANTIATE_TEST_SUITE_P(TinyInt8, EveryTinyEngine,
                         testing::Values(Param{"llama-3", KvType::kInt8}, Param{"gemma3", KvType::kInt8},
                                         Param{"qwen3moe", KvType::kInt8}, Param{"gpt-oss", KvType::kInt8},
                                         Param{"minicpm3", KvType::kInt8},
                                         Param{"deepseek-v3", KvType::kInt8}),
                         test_name);

}  // namespace
}  // namespace kvasir
