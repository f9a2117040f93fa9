// The engine over real models: an answer does not depend on company, chunks, cache, preemption, threads or
// instruction set. The fake model's tests are finer; these show that the real arithmetic keeps the promise
// too.

#include "engine/llm.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <thread>

#include "base/build_kind.h"

namespace kvasir {
namespace {

constexpr const char* kStory =
    "A young engineer had a clock that ran backwards. Every morning she wound it, every night it told her "
    "what she had "
    "forgotten. One day the hands stood still, and a small door opened between the numbers seven and eight. ";

std::vector<Request> requests(const Tokenizer& tokenizer) {
  std::vector<Request> out;
  for (uint32_t i = 0; i < (6u); ++i) {
    Request r;
    std::string text = i % 3 == 0 ? kStory : "";
    text += "Question " + std::to_string(i * 37) + ": why? Answer:";
    r.prompt = tokenizer.encode(text, {});
    r.sampling.temperature = i % 2 == 0 ? 0.0f : 0.9f;
    r.sampling.top_p = 0.95f;
    r.sampling.seed = i;
    r.sampling.max_tokens = 16;
    r.sampling.ignore_eos = true;
    r.sampling.logprobs = 2;
    out.push_back(std::move(r));
  }
  out.back().n = 2;
  return out;
}

struct Param {
  const char* file;
  KvType kv_type;
};

class RealModel : public testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (kSlowBuild) GTEST_SKIP() << "sanitised builds test the engine over the fake model";
    path_ = std::string(KVASIR_SOURCE_DIR) + "/models/" + GetParam().file;
    if (!std::filesystem::exists(path_))
      GTEST_SKIP() << path_ << " is absent: tools/fetch_models.py fetches it";
  }

  static Llm::Options options(uint32_t threads, uint32_t budget, uint64_t kv_bytes) {
    Llm::Options o;
    o.threads = threads;
    o.engine.max_num_batched_tokens = budget;
    o.engine.max_num_seqs = 8;
    o.engine.max_model_len = 1024;
    o.engine.block_size = 16;
    o.engine.kv_bytes = kv_bytes;
    o.engine.kv_type = GetParam().kv_type;
    o.engine.check_invariants = true;
    return o;
  }

  std::unique_ptr<Llm> open(const Llm::Options& o) {
    auto llm = Llm::open(path_, o);
    EXPECT_TRUE(llm.ok()) << llm.status().message();
    return llm.ok() ? std::move(llm).value() : nullptr;
  }

  static std::vector<Llm::Answer> answers(Llm& llm, bool at_once) {
    const std::vector<Request> asked = requests(llm.tokenizer());
    std::vector<Llm::Answer> out(asked.size());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < asked.size(); ++i) {
      threads.emplace_back([&, i] { out[i] = llm.generate(asked[i]).value(); });
      if (!at_once) threads.back().join();
    }
    for (std::thread& t : threads) {
      if (t.joinable()) t.join();
    }
    return out;
  }

  static void expect_equal(const std::vector<Llm::Answer>& a, const std::vector<Llm::Answer>& b) {
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      ASSERT_EQ(a[i].choices.size(), b[i].choices.size());
      for (size_t c = 0; c < a[i].choices.size(); ++c) {
        const Llm::Completion &x = a[i].choices[c], &y = b[i].choices[c];
        EXPECT_EQ(x.tokens, y.tokens) << "request " << i << " choice " << c;
        EXPECT_EQ(x.text, y.text);
        EXPECT_EQ(x.finish, y.finish);
        ASSERT_EQ(x.logprobs.size(), y.logprobs.size());
        for (size_t t = 0; t < x.logprobs.size(); ++t) {
          ASSERT_EQ(x.logprobs[t].logprob, y.logprobs[t].logprob) << "request " << i << " token " << t;
          ASSERT_EQ(x.logprobs[t].top[1].logprob, y.logprobs[t].top[1].logprob);
        }
      }
    }
  }

  std::string path_;
};

TEST_P(RealModel, AnswersAreEqualInEveryCircumstance) {
  constexpr uint64_t kPlenty = uint64_t{256} << 20;
  std::vector<Llm::Answer> alone;
  size_t bytes_per_block = 0;
  uint32_t units = 0;
  {
    Llm::Options o = options(1, 256, kPlenty);
    o.engine.enable_prefix_caching = false;
    const auto llm = open(o);
    ASSERT_NE(llm, nullptr);
    alone = answers(*llm, false);
    const KvLayout layout = KvLayout::make(llm->model().config().kv_layers(), 16, GetParam().kv_type).value();
    bytes_per_block = layout.block_bytes();
    units = layout.units();
  }
  EXPECT_FALSE(alone[0].choices[0].text.empty());
  for (const uint32_t budget : {1u, 7u, 64u}) {
    SCOPED_TRACE(testing::Message() << "all at once, budget " << budget);
    const auto llm = open(options(2, budget, kPlenty));
    expect_equal(alone, answers(*llm, true));
    if (budget == 1) continue;
    SCOPED_TRACE("from the cache");
    const std::vector<Llm::Answer> again = answers(*llm, true);
    EXPECT_GT(again[0].choices[0].cached_tokens, 16u);
    expect_equal(alone, again);
  }
  {
    SCOPED_TRACE("a pool of nine entries");
    const auto llm = open(options(2, 64, bytes_per_block * units * 9));
    expect_equal(alone, answers(*llm, true));
    EXPECT_GT(llm->engine().stats().preemptions, 0u);
  }
  if (best_isa() != Isa::kScalar) {
    SCOPED_TRACE("another instruction set");
    Llm::Options o = options(2, 64, kPlenty);
    o.isa = isa_supported(Isa::kAvx2) && best_isa() != Isa::kAvx2 ? Isa::kAvx2 : Isa::kScalar;
    const auto llm = open(o);
    expect_equal(alone, answers(*llm, true));
  }
}

// A text longer than a sliding window, in turns: the second turn computes only what is new.
TEST_P(RealModel, LongConversationHitsTheCache) {
  const auto llm = open(options(2, 256, uint64_t{256} << 20));
  std::string text;
  for (int i = 0; i < 14; ++i) text += std::to_string(i) + kStory;
  Request first;
  first.prompt = llm->tokenizer().encode(text, {});
  first.sampling.temperature = 0;
  first.sampling.max_tokens = 20;
  first.sampling.ignore_eos = true;
  ASSERT_GT(first.prompt.size(), 600u);
  const Llm::Completion one = llm->generate(first).value().choices[0];
  EXPECT_EQ(one.cached_tokens, 0u);
  Request second = first;
  second.prompt.insert(second.prompt.end(), one.tokens.begin(), one.tokens.end());
  const Llm::Completion two = llm->generate(second).value().choices[0];
  EXPECT_GE(two.cached_tokens + 32, second.prompt.size());

  Llm::Options o = options(1, 100, uint64_t{256} << 20);
  o.engine.enable_prefix_caching = false;
  const auto plain = open(o);
  EXPECT_EQ(plain->generate(first).value().choices[0].tokens, one.tokens);
  EXPECT_EQ(plain->generate(second).value().choices[0].tokens, two.tokens);
}

INSTANTIATE_TEST_SUITE_P(Models, RealModel,
                         testing::Values(Param{"smollm2-135m-instruct-q4_1.gguf", KvType::kF16},
                                         Param{"gemma-3-270m-q4_k_m.gguf", KvType::kF16},
                                         Param{"smollm2-135m-instruct-q4_1.gguf", KvType::kInt8}),
                         [](const auto& param) {
                           const std::string file = param.param.file;
                           return (file.substr(0, 5) == "smoll" ? "SmolLM2_" : "Gemma3_") +
                                  std::string(kv_type_name(param.param.kv_type));
                         });

TEST(LlmOpen, SaysWhatIsMissing) {
  const auto none = Llm::open("/nonexistent/model.gguf", {});
  ASSERT_FALSE(none.ok());
  EXPECT_NE(none.status().message().find("/nonexistent/model.gguf"), std::string::npos);
}

}  // namespace
}  // namespace kvasir
