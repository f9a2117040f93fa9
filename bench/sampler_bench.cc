// Choosing one token from a row of logits, one thread: the vocabularies of the real models, and the
// parameters that people send. A sampler may spoil its row, so every draw gets a fresh copy, whose making is
// not timed.
#include <chrono>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "base/aligned_buffer.h"
#include "decoding/sampler.h"

namespace kvasir {
namespace {

struct Case {
  const char* name;
  SamplingParams params;
};

std::vector<Case> cases() {
  const auto make = [](auto&& set) {
    SamplingParams p;
    p.seed = 7;
    set(p);
    return p;
  };
  return {
      {"greedy", make([](SamplingParams& p) { p.temperature = 0; })},
      {"temperature_1", make([](SamplingParams&) {})},
      {"top_k_40", make([](SamplingParams& p) { p.top_k = 40; })},
      {"top_p_0.9", make([](SamplingParams& p) { p.top_p = 0.9f; })},
      {"min_p_0.05", make([](SamplingParams& p) { p.min_p = 0.05f; })},
      {"top_k_40_top_p_0.9_t_0.7", make([](SamplingParams& p) {
         p.top_k = 40;
         p.top_p = 0.9f;
         p.temperature = 0.7f;
       })},
      {"penalties_greedy", make([](SamplingParams& p) {
         p.temperature = 0;
         p.repetition_penalty = 1.1f;
         p.presence_penalty = 0.5f;
       })},
      {"logprobs_5_greedy", make([](SamplingParams& p) {
         p.temperature = 0;
         p.logprobs = 5;
       })},
  };
}

// A row as models give them: most tokens far below a few good ones.
std::vector<float> logits_row(uint32_t vocab) {
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> row(vocab);
  for (float& v : row) v = normal(random);
  for (uint32_t i = 0; i < 20; ++i) row[(i * 7919u) % vocab] = 12.0f + static_cast<float>(i % 5);
  return row;
}

void sample(benchmark::State& state, const SamplingParams& params, uint32_t vocab) {
  const std::vector<float> logits = logits_row(vocab);
  AlignedBuffer row(vocab * sizeof(float));
  Sampler sampler(params, 0, vocab, {}, kernel_table(best_isa()));
  for (uint32_t i = 0; i < 512; ++i) sampler.observe_output(static_cast<TokenId>(i * 31u % vocab));
  SamplerScratch scratch;
  uint32_t position = 0;
  for (auto _ : state) {
    std::copy(logits.begin(), logits.end(), row.as<float>().begin());
    const auto begin = std::chrono::steady_clock::now();
    auto token = sampler.sample(row.as<float>(), position, position, scratch);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    if (!token.ok()) return state.SkipWithError(token.message().c_str());
    ++position;
    state.SetIterationTime(elapsed.count());
  }
  const auto values = static_cast<double>(vocab) * static_cast<double>(state.iterations());
  state.counters["Glogits/s"] = benchmark::Counter(values * 1e-9, benchmark::Counter::kIsRate);
}

void register_all() {
  for (const Case& c : cases())
    for (const uint32_t vocab : {49152u, 151936u, 262144u})
      benchmark::RegisterBenchmark(fmt::format("sample/{}/vocab:{}", c.name, vocab).c_str(),
                                   [=](benchmark::State& state) { sample(state, c.params, vocab); })
          ->UseManualTime()
          ->Unit(benchmark::kMicrosecond);
}

}  // namespace
}  // namespace kvasir

int main(int argc, char** argv) {
  kvasir::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
