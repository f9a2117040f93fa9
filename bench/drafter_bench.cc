// Drafting without a network, one thread, at long contexts: proposing 8 and 16 tokens when one token came
// since the last time, and reading a prompt for the first time. `text` is words drawn by a skewed law, as
// natural texts are; `loop` repeats a line of 40 tokens; `random` never repeats; `same` is one token over and
// over.
#include <chrono>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include "decoding/ngram_drafter.h"
#include "decoding/suffix_drafter.h"

namespace kvasir {
namespace {

std::vector<TokenId> make_text(const std::string& kind, size_t size) {
  std::mt19937 random(3);
  std::vector<TokenId> text(size);
  for (size_t i = 0; i < size; ++i) {
    const double u = std::uniform_real_distribution<double>(0, 1)(random);
    if (kind == "text")
      text[i] = static_cast<TokenId>(3000 * u * u * u * u);
    else if (kind == "loop")
      text[i] = static_cast<TokenId>(i % 40);
    else if (kind == "same")
      text[i] = 7;
    else
      text[i] = static_cast<TokenId>(150000 * u);
  }
  return text;
}

std::unique_ptr<Drafter> make_drafter(const std::string& name) {
  if (name == "ngram") return std::make_unique<NgramDrafter>(1);
  return std::make_unique<SuffixDrafter>(1);
}

void propose(benchmark::State& state, const std::string& name, const std::string& kind, uint32_t context,
             uint32_t most) {
  constexpr uint32_t kSteps = 1000;
  const std::vector<TokenId> text = make_text(kind, context + kSteps);
  std::unique_ptr<Drafter> drafter;
  Draft draft;
  uint32_t at = context + kSteps;
  for (auto _ : state) {
    if (at == context + kSteps) {
      drafter = make_drafter(name);
      drafter->open(0, context + kSteps);
      at = context;
      DraftJob job{.slot = 0, .known = {text.data(), at}, .most = 0, .draft = &draft};
      drafter->propose({&job, 1});
    }
    ++at;
    DraftJob job{.slot = 0, .known = {text.data(), at}, .most = most, .draft = &draft};
    const auto begin = std::chrono::steady_clock::now();
    drafter->propose({&job, 1});
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    benchmark::DoNotOptimize(draft);
    state.SetIterationTime(elapsed.count());
  }
}

void read_prompt(benchmark::State& state, const std::string& name, const std::string& kind,
                 uint32_t context) {
  const std::vector<TokenId> text = make_text(kind, context);
  Draft draft;
  for (auto _ : state) {
    auto drafter = make_drafter(name);
    drafter->open(0, context);
    DraftJob job{.slot = 0, .known = text, .most = 0, .draft = &draft};
    drafter->propose({&job, 1});
  }
  state.counters["s/token"] =
      benchmark::Counter(static_cast<double>(context) * static_cast<double>(state.iterations()),
                         benchmark::Counter::kIsRate | benchmark::Counter::kInvert);
}

void register_all() {
  for (const char* name : {"ngram", "suffix"})
    for (const char* kind : {"text", "loop", "same", "random"})
      for (const uint32_t context : {8192u, 65536u}) {
        for (const uint32_t most : {8u, 16u})
          benchmark::RegisterBenchmark(
              fmt::format("propose/{}/{}/context:{}/k:{}", name, kind, context, most).c_str(),
              [=](benchmark::State& state) { propose(state, name, kind, context, most); })
              ->UseManualTime()
              ->Iterations(5000)
              ->Unit(benchmark::kMicrosecond);
        benchmark::RegisterBenchmark(
            fmt::format("read_prompt/{}/{}/context:{}", name, kind, context).c_str(),
            [=](benchmark::State& state) { read_prompt(state, name, kind, context); })
            ->Unit(benchmark::kMillisecond);
      }
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
