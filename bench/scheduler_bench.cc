// What the scheduler, the pool and the prefix cache take per step, without the model: planning, committing
// and the blocks, one thread. A step of 256 rows of SmolLM2-135M takes tens of milliseconds; this is to stay
// below 2 % of it.
#include <chrono>
#include <functional>
#include <memory>

#include <benchmark/benchmark.h>

#include "tests/steps/step_rig.h"

namespace kvasir {
namespace {

// Times rig.step(); makes a rig anew (not timed) when `ended` says so.
void time_steps(benchmark::State& state, const std::function<std::unique_ptr<StepRig>()>& make,
                const std::function<bool(const StepRig&)>& ended) {
  std::unique_ptr<StepRig> rig = make();
  double rows = 0;
  for (auto _ : state) {
    if (ended(*rig)) rig = make();
    const auto begin = std::chrono::steady_clock::now();
    rows += rig->step().rows;
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - begin;
    state.SetIterationTime(elapsed.count());
  }
  state.counters["rows/step"] = rows / static_cast<double>(state.iterations());
}

std::unique_ptr<StepRig> decoding(uint32_t sequences, uint32_t prompt, StepRig::Options options) {
  options.max_num_batched_tokens = 4096;  // so that prompts are soon read
  auto rig = std::make_unique<StepRig>(options);
  for (uint32_t i = 0; i < sequences; ++i) rig->add(prompt + i % 64);
  rig->settle();
  return rig;
}

// Everybody decodes.
void decode(benchmark::State& state) {
  const uint32_t sequences = static_cast<uint32_t>(state.range(0));
  time_steps(
      state, [=] { return decoding(sequences, 256, {.blocks = 20000}); },
      [](const StepRig& rig) { return rig.at_end(); });
}
BENCHMARK(decode)->Arg(1)->Arg(64)->Arg(256)->UseManualTime()->Unit(benchmark::kMicrosecond);

// Layers of two kinds, as Gemma 3 has them.
void decode_windows(benchmark::State& state) {
  time_steps(
      state,
      [] {
        return decoding(256, 256, {.windows = {512, 512, 512, 512, 512, 0}, .blocks = 60000});
      },
      [](const StepRig& rig) { return rig.at_end(); });
}
BENCHMARK(decode_windows)->UseManualTime()->Unit(benchmark::kMicrosecond);

// The first `most` steps of each rig.
void time_first_steps(benchmark::State& state, const std::function<std::unique_ptr<StepRig>()>& make,
                      uint32_t most) {
  uint32_t steps = 0;
  time_steps(
      state,
      [&] {
        steps = 0;
        return make();
      },
      [&](const StepRig&) { return ++steps > most; });
}

// 128 decode, one long prompt is read beside them and 127 of the same beginning wait for its blocks.
void decode_beside_prompts(benchmark::State& state) {
  const auto make = [] {
    auto rig = decoding(128, 64, {.blocks = 20000, .max_model_len = 4096});
    for (int i = 0; i < 128; ++i) rig->add(3000, 2900);
    return rig;
  };
  time_first_steps(state, make, 150);
}
BENCHMARK(decode_beside_prompts)->UseManualTime()->Unit(benchmark::kMicrosecond);

// The pool is full: the first that waits, with a long prompt, is held against it in every step.
void decode_with_a_full_pool(benchmark::State& state) {
  const auto make = [] {
    auto rig = decoding(200, 200, {.blocks = 2100, .max_model_len = 4096});
    for (int i = 0; i < 200; ++i) rig->add(4000, 3900);
    return rig;
  };
  time_first_steps(state, make, 30);
}
BENCHMARK(decode_with_a_full_pool)->UseManualTime()->Unit(benchmark::kMicrosecond);

// The step in which 256 short requests start.
void start_256(benchmark::State& state) {
  const auto make = [] {
    auto rig = std::make_unique<StepRig>(
        StepRig::Options{.blocks = 20000, .max_num_batched_tokens = 8192, .paced = false});
    for (int i = 0; i < 256; ++i) rig->add(30);
    return rig;
  };
  time_steps(state, make, [](const StepRig&) { return true; });
}
BENCHMARK(start_256)->UseManualTime()->Unit(benchmark::kMicrosecond)->Iterations(50);

}  // namespace
}  // namespace kvasir

BENCHMARK_MAIN();
