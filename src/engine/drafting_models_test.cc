// Real models that draft for real models: answers with guesses are those without, to the bit, and a model
// that drafts for itself is always right.

#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <iterator>

#include "base/build_kind.h"
#include "engine/collect_answers.h"
#include "engine/drafters.h"
#include "engine/llm.h"

namespace kvasir {
namespace {

constexpr const char* kSmol = "smollm2-135m-instruct-q4_1.gguf";
constexpr const char* kQwenHalf = "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf";
constexpr const char* kQwen = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf";

std::string path_of(const std::string& file) {
  return std::string(KVASIR_SOURCE_DIR) + "/models/" + file;
}

Llm::Options options() {
  Llm::Options o;
  o.threads = 2;
  o.engine.max_num_seqs = 4;
  o.engine.max_model_len = 512;
  o.engine.kv_bytes = uint64_t{128} << 20;
  o.engine.block_size = 16;
  o.engine.check_invariants = true;
  return o;
}

// Greedy and sampled ones, some with log-probabilities, which need whole rows of logits.
std::vector<Request> requests(const Tokenizer& tokenizer, float temperature, uint32_t count,
                              uint32_t tokens) {
  const char* const texts[] = {
      "def mean(values):\n    \"\"\"Average of a list.\"\"\"\n    total = 0\n    for value in values:\n",
      "{\"name\": \"Ada\", \"born\": 1815}\n{\"name\": \"Alan\", \"born\": 1912}\n{\"name\":",
      "Once upon a time there was a lighthouse keeper who", "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11,"};
  std::vector<Request> out;
  for (uint32_t i = 0; i < count; ++i) {
    Request r;
    r.prompt = tokenizer.encode(texts[i % 4], {});
    r.sampling.temperature = temperature;
    r.sampling.seed = 11 + i;
    r.sampling.max_tokens = tokens;
    r.sampling.logprobs = i % 2 == 1 ? 2 : -1;
    if (i == 2) r.stop = {"light"};
    out.push_back(std::move(r));
  }
  return out;
}

// All at once, or one after the other.
std::vector<CollectedAnswer> ask(Engine& engine, const std::vector<Request>& asked, bool at_once) {
  std::vector<CollectedAnswer> out;
  for (size_t i = 0; i < asked.size(); i += at_once ? asked.size() : 1) {
    auto some = collect_answers(engine, at_once ? asked : std::vector<Request>{asked[i]});
    EXPECT_TRUE(some.ok()) << some.message();
    if (!some.ok()) return std::vector<CollectedAnswer>(asked.size());
    std::move(some->begin(), some->end(), std::back_inserter(out));
  }
  return out;
}

void expect_equal(const std::vector<CollectedAnswer>& a, const std::vector<CollectedAnswer>& b) {
  for (size_t i = 0; i < a.size(); ++i) {
    EXPECT_EQ(a[i].tokens, b[i].tokens) << "request " << i;
    EXPECT_EQ(a[i].text, b[i].text);
    EXPECT_EQ(a[i].finish, b[i].finish);
    ASSERT_EQ(a[i].logprobs.size(), b[i].logprobs.size());
    for (size_t t = 0; t < a[i].logprobs.size(); ++t) {
      ASSERT_EQ(a[i].logprobs[t].logprob, b[i].logprobs[t].logprob) << "request " << i << " token " << t;
      ASSERT_EQ(a[i].logprobs[t].top[1].logprob, b[i].logprobs[t].top[1].logprob);
    }
  }
}

struct Pair {
  const char* target;
  std::string drafter;   // as --speculate takes it
  bool right = false;    // every guess is
  uint32_t tokens = 32;  // of an answer
};

class DraftingModels : public testing::TestWithParam<Pair> {};

TEST_P(DraftingModels, AnswersAreThoseWithoutGuesses) {
  if (kSlowBuild) GTEST_SKIP() << "sanitised builds test drafts over the fake model";
  const Pair& pair = GetParam();
  for (const char* file : {pair.target, kQwenHalf}) {
    if (!std::filesystem::exists(path_of(file)))
      GTEST_SKIP() << path_of(file) << " is absent: tools/fetch_models.py fetches it";
  }
  auto opened = Llm::open(path_of(pair.target), options());
  ASSERT_TRUE(opened.ok()) << opened.message();
  Llm& llm = **opened;
  for (const float temperature : {0.0f, 0.8f}) {
    const std::vector<Request> asked = requests(llm.tokenizer(), temperature, 4, pair.tokens);
    const std::vector<CollectedAnswer> without = ask(llm.engine(), asked, true);
    for (const uint32_t most : {1u, 3u, 8u}) {
      for (const bool at_once : {true, false}) {
        if (!at_once && most != 3) continue;
        SCOPED_TRACE(testing::Message() << pair.drafter << ", " << most << " guesses, temperature "
                                        << temperature << (at_once ? ", all at once" : ""));
        EngineConfig config = options().engine;
        config.speculation.drafters = parse_drafters(pair.drafter).value();
        config.speculation.most = most;
        config.speculation.always = true;
        auto engine = llm.start_engine(config);
        ASSERT_TRUE(engine.ok()) << engine.message();
        expect_equal(without, ask(**engine, asked, at_once));
        const DrafterStats stats = stats_when_idle(**engine).speculation.drafters.at(0);
        EXPECT_GT(stats.drafts, 0u);
        RecordProperty("accepted of drafted",
                       std::to_string(stats.accepted) + "/" + std::to_string(stats.drafted));
        if (!pair.right) continue;
        // But those behind the end of an answer, which are no part of it.
        EXPECT_GE(stats.accepted + asked.size() * most, stats.drafted);
      }
    }
  }
}

std::string draft_of(const char* file, const char* head = "") {
  return "draft=" + path_of(file) + head;
}

INSTANTIATE_TEST_SUITE_P(Real, DraftingModels,
                         testing::Values(Pair{kSmol, "layers=10"}, Pair{kSmol, "layers=20"},
                                         Pair{kSmol, "layers=29"}, Pair{kSmol, "layers=30", true},
                                         Pair{kSmol, "layers=0-9+20-29"},
                                         Pair{kSmol, draft_of(kSmol, ":0"), true},
                                         Pair{kQwenHalf, draft_of(kQwenHalf, ":0"), true, 20},
                                         Pair{kQwen, draft_of(kQwenHalf), false, 20}),
                         [](const auto& param) {
                           std::string name = std::to_string(param.index);
                           for (const char c : param.param.drafter.substr(0, 16))
                             name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
                           return name;
                         });

TEST(DraftingModels, SaysWhatIsWrong) {
  if (kSlowBuild || !std::filesystem::exists(path_of(kSmol)) || !std::filesystem::exists(path_of(kQwenHalf)))
    GTEST_SKIP() << "a sanitised build, or models are absent: tools/fetch_models.py fetches them";
  auto opened = Llm::open(path_of(kQwenHalf), options());
  ASSERT_TRUE(opened.ok()) << opened.message();
  const auto error_of = [&](const std::string& drafter) {
    EngineConfig config = options().engine;
    config.speculation.drafters = parse_drafters(drafter).value();
    const auto engine = (*opened)->start_engine(config);
    EXPECT_FALSE(engine.ok()) << drafter;
    return engine.ok() ? "" : engine.message();
  };
  EXPECT_NE(error_of(draft_of(kSmol)).find("token 0 is '<|endoftext|>' in the draft model and '!' here"),
            std::string::npos)
      << error_of(draft_of(kSmol));
  EXPECT_NE(error_of("draft=/nonexistent/draft.gguf").find("/nonexistent/draft.gguf"), std::string::npos);
  EXPECT_NE(error_of(draft_of(kSmol) + ":abc").find("'abc' is not a number of tokens"), std::string::npos);
  EXPECT_NE(error_of("layers=25").find("the model has 24 layers"), std::string::npos);
}

}  // namespace
}  // namespace kvasir
