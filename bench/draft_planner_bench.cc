// Choosing the guesses of a step (engine/draft_planner.h), on one thread: how long the engine is held up by
// it, for so many sequences that each have a free drafter's sixteen guesses, and, in the second case, a
// drafter with passes of its own beside it. Costs are those of PerfModel for a model of 24 layers, and what
// asking it for one takes is timed too: a step's, which is to stay below a microsecond, and those of a step
// that takes one sequence more.
#include <cmath>
#include <memory>
#include <vector>

#include <benchmark/benchmark.h>

#include "engine/draft_planner.h"
#include "perf/perf_model.h"

namespace kvasir {
namespace {

struct Named final : Drafter {
  explicit Named(const PerfModel* model) : perf(model) {}
  std::string_view name() const override { return "named"; }
  void open(uint32_t, uint32_t) override {}
  void close(uint32_t) override {}
  void propose(std::span<DraftJob>) override {}
  double seconds(uint32_t sequences, uint32_t tokens) const override {
    StepLoad load;
    perf->add(load, {.rows = 1, .context = 500}, 1);
    load.repeat(sequences);
    return tokens * perf->seconds(load) / 4;
  }
  bool is_free() const override { return perf == nullptr; }
  const PerfModel* perf;
};

std::unique_ptr<PerfModel> perf_model() {
  ModelConfig config;
  config.hidden_dim = 896;
  config.ffn_dim = 4864;
  config.layers = 24;
  config.heads = 14;
  config.kv_heads = 2;
  config.head_dim = 64;
  config.rope_dim = 64;
  config.windows.assign(24, 0);
  WeightSizes weights;
  weights.layer_bytes = 240 << 20;
  weights.head_bytes = 140 << 20;
  weights.matrices = {{WeightSizes::Phase::kGateUp, DType::kQ8_0, 4864, 896, 72, 4'600'000}};
  weights.head_type = weights.embedding_type = DType::kQ8_0;
  weights.head_n = 151936;
  weights.head_k = 896;
  HardwareProfile machine;
  machine.threads = 2;
  machine.clock_hz = 3e9;
  machine.int8_macs = {3e11, 6e11};
  machine.f32_macs = {1e11, 2e11};
  machine.reads = {{1 << 20, {5e10, 1e11}}, {uint64_t{1} << 30, {1e10, 1.5e10}}};
  return std::make_unique<PerfModel>(
      config, weights, machine, PerfModel::Options{.threads = 2, .max_rows = 512, .max_logit_rows = 512});
}

void plan(benchmark::State& state) {
  const auto sequences = static_cast<uint32_t>(state.range(0));
  const bool dear = state.range(1) != 0;
  const auto perf = perf_model();
  std::vector<std::unique_ptr<Drafter>> drafters;
  drafters.push_back(std::make_unique<Named>(nullptr));
  if (dear) drafters.push_back(std::make_unique<Named>(perf.get()));
  DraftPlanner planner;
  planner.reserve(sequences, 2);
  StepLoad load;
  for (uint32_t s = 0; s < sequences; ++s) perf->add(load, {.rows = 1, .context = 500}, 1);
  uint32_t guesses = 0;
  for (auto _ : state) {
    planner.clear();
    for (uint32_t s = 0; s < sequences; ++s) planner.add_candidate(s, 500 + s);
    for (DraftPlanner::Candidate& candidate : planner.candidates()) {
      for (uint32_t d = 0; d < drafters.size(); ++d) {
        DraftPlanner::Bid bid{.drafter = d, .most = Draft::kMost};
        double reach = 1;
        for (double& r : bid.reach) r = reach *= 0.6 + 0.01 * (candidate.slot % 32) + 0.05 * d;
        planner.add_bid(candidate, bid);
      }
    }
    benchmark::DoNotOptimize(planner.plan({.costs = perf.get(), .load = load, .margin = 1.03}, drafters));
    for (const auto& candidate : planner.candidates()) guesses = std::max(guesses, candidate.chosen);
  }
  state.counters["most guesses"] = guesses;
}
BENCHMARK(plan)
    ->ArgNames({"sequences", "dear"})
    ->ArgsProduct({{1, 8, 32, 64}, {0, 1}})
    ->Unit(benchmark::kMicrosecond);

// Of a step that is put together already: what a controller asks for again and again, at so many rows.
void cost_of_a_step(benchmark::State& state) {
  const auto perf = perf_model();
  StepLoad load;
  for (int64_t s = 0; s < state.range(0); ++s) perf->add(load, {.rows = 1, .context = 500}, 1);
  for (auto _ : state) {
    benchmark::DoNotOptimize(load);
    benchmark::DoNotOptimize(perf->seconds(load));
  }
}
BENCHMARK(cost_of_a_step)->Arg(1)->Arg(32)->Arg(256);

// With a sequence more, of so many rows: calls of attention are summed up.
void cost_of_one_more(benchmark::State& state) {
  const auto perf = perf_model();
  const auto rows = static_cast<uint32_t>(state.range(0));
  for (auto _ : state) {
    StepLoad load;
    perf->add(load, {.rows = rows, .context = 500}, 1);
    benchmark::DoNotOptimize(perf->seconds(load));
  }
}
BENCHMARK(cost_of_one_more)->Arg(1)->Arg(8)->Arg(256);

}  // namespace
}  // namespace kvasir

BENCHMARK_MAIN();
