#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine_core.h"
#include "engine/fake_model.h"

namespace kvasir {

// An EngineCore over the fake model, stepped by the test, that checks the invariants around every step.
struct RigOptions {
  FakeLm::Options model;
  uint32_t blocks = 400;  // of 16 tokens
  uint32_t max_num_seqs = 16;
  uint32_t max_num_batched_tokens = 64;
  bool prefix_caching = true;
  uint32_t max_model_len = 512;
  bool predict = false;  // steps, from rates made up
  double max_itl_seconds = 0;
  SpeculationConfig speculation;
  std::function<std::vector<std::unique_ptr<Drafter>>()> drafters;
  // Or one that runs the model itself.
  std::function<std::unique_ptr<Drafter>(CausalLm& model, ThreadPool& threads)> own_drafter;
  bool check_invariants = true;
};

// Rates of no machine, with which fake models' steps are predicted.
inline std::unique_ptr<PerfModel> fake_perf_model(const ModelConfig& config, const CausalLm::Limits& limits) {
  HardwareProfile machine;
  machine.threads = 2;
  machine.clock_hz = 3e9;
  machine.int8_macs = machine.f32_macs = {1e10, 2e10};
  machine.reads = {{1 << 20, {1e10, 2e10}}};
  return std::make_unique<PerfModel>(
      config, WeightSizes{}, machine,
      PerfModel::Options{.threads = 2, .max_rows = limits.max_rows, .max_logit_rows = limits.max_logit_rows});
}

class CoreRig {
 public:
  struct Answer {
    std::vector<TokenId> tokens;
    std::vector<float> logprobs;
    std::string text;
    FinishReason finish = FinishReason::kNone;
    std::optional<std::string> stop_string;
    std::optional<TokenId> stop_token;
    Status error;
    uint32_t prompt_tokens = 0, cached_tokens = 0, output_tokens = 0;
    uint32_t events = 0;
  };
  using Key = std::pair<uint64_t, uint32_t>;  // request id and choice

  explicit CoreRig(const RigOptions& options = {})
      : options_(options), model(options.model), tokenizer(options.model.vocab), core(make_core()) {}

  // Submits; the answers of its choices appear under (id, choice).
  uint64_t add(Request request) {
    const uint64_t id = ++last_id_;
    core->add(
        RequestId{id}, std::move(request), [this, id](TokenEvent&& e) { take(id, std::move(e)); },
        monotonic_seconds());
    return id;
  }

  void step() {
    const Sequence* oldest =
        core->scheduler().running().empty() ? nullptr : core->scheduler().running().front();
    const uint32_t computed = oldest != nullptr ? oldest->computed : 0;
    const auto age = oldest != nullptr ? oldest->age : std::pair<uint64_t, uint32_t>{};
    core->step();
    check();
    // The oldest advances: it has ended, or has computed more.
    for (const Sequence* s : core->scheduler().waiting())
      ASSERT_TRUE(oldest == nullptr || s->age != age) << "the oldest was preempted";
    for (const Sequence* s : core->scheduler().running())
      ASSERT_TRUE(oldest == nullptr || s->age != age || s->computed > computed) << "the oldest stood still";
  }

  void run(uint32_t most_steps = 100000) {
    for (uint32_t i = 0; core->has_work() && !testing::Test::HasFatalFailure(); ++i) {
      ASSERT_LT(i, most_steps) << "the engine does not come to an end";
      step();
    }
  }

  void check() {
    const Status status = core->check_integrity();
    ASSERT_TRUE(status.ok()) << status.message();
    ASSERT_EQ(model.faults, 0u) << "a row read a slot that is not its own";
  }

  // The answers of a request equal what the model says without an engine.
  void expect_right(uint64_t id, const Request& request) {
    for (uint32_t c = 0; c < request.n; ++c) {
      const Expected e = expected_answer(request, c, options_.model, tokenizer, options_.max_model_len);
      const Answer& a = answers[{id, c}];
      EXPECT_EQ(a.tokens, e.tokens) << "request " << id << " choice " << c;
      EXPECT_EQ(a.text, e.text);
      EXPECT_EQ(a.finish, e.finish);
      EXPECT_EQ(a.prompt_tokens, request.prompt.size());
      EXPECT_EQ(a.output_tokens, e.tokens.size());
      if (request.sampling.logprobs >= 0) {
        EXPECT_EQ(a.logprobs, e.logprobs);
      }
    }
  }

 private:
  std::unique_ptr<EngineCore> make_core() {
    EngineConfig config;
    config.max_model_len = options_.max_model_len;
    config.max_num_seqs = options_.max_num_seqs;
    config.max_num_batched_tokens = options_.max_num_batched_tokens;
    config.block_size = 16;
    config.enable_prefix_caching = options_.prefix_caching;
    config.check_invariants = options_.check_invariants;
    config.max_itl_seconds = options_.max_itl_seconds;
    config.speculation = options_.speculation;
    const KvLayout layout = KvLayout::make(model.config().kv_layers(), 16).value();
    return std::make_unique<EngineCore>(
        config, layout, options_.blocks, model, tokenizer, kernel_table(best_isa()), threads, 7,
        options_.predict ? fake_perf_model(model.config(), model_limits(config)) : nullptr, make_drafters());
  }

  std::vector<std::unique_ptr<Drafter>> make_drafters() {
    std::vector<std::unique_ptr<Drafter>> list;
    if (options_.drafters) list = options_.drafters();
    if (options_.own_drafter) list.push_back(options_.own_drafter(model, threads));
    return list;
  }

  void take(uint64_t id, TokenEvent&& e) {
    Answer& a = answers[{id, e.choice}];
    ASSERT_EQ(a.finish, FinishReason::kNone) << "an event after the last one";
    a.tokens.insert(a.tokens.end(), e.tokens.begin(), e.tokens.end());
    for (const SampledToken& t : e.logprobs) a.logprobs.push_back(t.logprob);
    a.text += e.text;
    a.finish = e.finish;
    a.stop_string = e.stop_string;
    a.stop_token = e.stop_token;
    a.error = e.error;
    a.prompt_tokens = e.prompt_tokens;
    a.cached_tokens = e.cached_tokens;
    a.output_tokens = e.output_tokens;
    ++a.events;
    ASSERT_EQ(a.output_tokens, a.tokens.size());
  }

  RigOptions options_;
  uint64_t last_id_ = 0;

 public:
  FakeLm model;
  FakeTokenizer tokenizer;
  ThreadPool threads{2};
  std::map<Key, Answer> answers;
  std::unique_ptr<EngineCore> core;
};

// A prompt of tokens that depend on position and `text`; the first `shared` tokens do not depend on it.
inline std::vector<TokenId> fake_prompt(uint32_t length, uint32_t text, uint32_t shared = 0,
                                        uint32_t vocab = 48) {
  std::vector<TokenId> tokens;
  for (uint32_t p = 0; p < length; ++p)
    tokens.push_back(static_cast<TokenId>(1 + fake::mix(p < shared ? 0 : text + 1, p) % (vocab - 1)));
  return tokens;
}

inline Request fake_request(std::vector<TokenId> prompt, uint32_t max_tokens, float temperature = 0.0f,
                            uint64_t seed = 1) {
  Request r;
  r.prompt = std::move(prompt);
  r.sampling.max_tokens = max_tokens;
  r.sampling.temperature = temperature;
  r.sampling.seed = seed;
  return r;
}

// Windows of the layers of models of three kinds.
inline std::vector<uint32_t> kinds_of_model(int kind) {
  if (kind == 0) return {0, 0};
  if (kind == 1) return {24, 24, 0, 24, 24, 0};  // two groups, one of two units
  return {24, 24};
}

// Any request: of up to `longest` prompt tokens, part of them shared with others, and all that changes what
// is chosen or where it ends.
inline Request random_request(std::mt19937& rng, uint32_t longest) {
  Request r = fake_request(fake_prompt(1 + rng() % longest, rng() % 4, rng() % 100), 1 + rng() % 50,
                           rng() % 2 == 0 ? 0.0f : 0.9f, rng());
  r.sampling.logprobs = static_cast<int32_t>(rng() % 3) - 1;
  if (rng() % 3 == 0) r.sampling.repetition_penalty = 1.3f;
  if (rng() % 3 == 0) r.sampling.presence_penalty = 0.5f;
  if (rng() % 3 == 0) r.stop = {"ab", "x", "cdq"};
  if (rng() % 4 == 0) r.sampling.stop_token_ids = {5, 17};
  if (rng() % 4 == 0) r.sampling.min_tokens = rng() % 10;
  if (rng() % 5 == 0) r.sampling.ignore_eos = true;
  if (rng() % 5 == 0) r.n = 1 + rng() % 4;
  if (rng() % 8 == 0) r.cache_salt = "other";
  if (rng() % 3 == 0) r.priority = static_cast<int32_t>(rng() % 5) - 2;
  if (rng() % 2 == 0) r.user = std::string(1, static_cast<char>('a' + rng() % 3));
  if (rng() % 4 == 0) r.sampling.top_k = 1 + static_cast<int32_t>(rng() % 12);
  if (rng() % 4 == 0) r.sampling.top_p = 0.7f;
  if (rng() % 4 == 0) r.sampling.min_p = 0.3f;
  if (rng() % 4 == 0) r.sampling.frequency_penalty = 0.4f;
  if (rng() % 4 == 0) r.sampling.logit_bias = {{static_cast<TokenId>(rng() % 48), 3.0f}, {7, -100.0f}};
  if (rng() % 8 == 0) r.sampling.allowed_tokens = std::vector<TokenId>{3, 4, 8, 9, 11, 15, 20, 31, 40};
  return r;
}

}  // namespace kvasir
