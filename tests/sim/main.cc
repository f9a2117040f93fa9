// Plays seeded scenarios against the real scheduler and engine on a virtual clock, and checks every invariant
// after each operation.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdio>
#include <string>

#include "playground.h"

namespace kvasir::sim {
namespace {

struct Flags {
  std::string world = "scheduler";
  std::string ops;
  uint64_t seed = 0;
  bool one_seed = false;
  uint64_t first = 0;
  uint64_t seeds = 2000;
  double seconds = 0;
  bool list = false;
};

void print_tally(uint64_t played, const Tally& t, double seconds) {
  fmt::print("{} seeds in {:.1f} s: {} operations, {} checks, {} steps of {} rows ({:.0f} virtual s)\n",
             played, seconds, t.operations, t.checks, t.steps, t.rows, t.seconds);
  fmt::print(
      "{} requests; {} choices finished, {} were cancelled; {} forks, {} preemptions, {} block copies, {} "
      "prompt tokens from the cache ({} hits end inside a block), {} steps that a sequence waited for "
      "another's blocks, {} plans that made cached blocks give way, {} sequences let in before an older "
      "one\n",
      t.requests, t.finished, t.cancelled, t.forks, t.preemptions, t.copies, t.hit_tokens, t.partial_hits,
      t.follows, t.evictions, t.overtakes);
  fmt::print("digest {:016x}\n", t.digest);
}

int play_one(WorldKind kind, const Flags& flags) {
  std::vector<uint32_t> kept = all_operations(kind, flags.seed);
  if (!flags.ops.empty()) {
    const auto list = parse_list(flags.ops);
    if (!list) {
      fmt::print(stderr, "--ops {}: not a list of operations; write it as 0-3,7\n", flags.ops);
      return 2;
    }
    kept = *list;
  }
  if (flags.list) {
    fmt::print("{}", failure_text(kind, {flags.seed, kept, "not played"}));
    return 0;
  }
  const auto failure = play_apart(kind, flags.seed, kept);
  if (!failure) {
    fmt::print("seed {}: {} operations, nothing is wrong\n", flags.seed, kept.size());
    return 0;
  }
  fmt::print("{}", failure_text(kind, flags.ops.empty() ? shrink(kind, *failure) : *failure));
  return 1;
}

int play_many(WorldKind kind, const Flags& flags) {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [start] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const Campaign campaign = play_seeds(kind, flags.first, [&](uint64_t played) {
    return flags.seconds > 0 ? elapsed() < flags.seconds : played < flags.seeds;
  });
  print_tally(campaign.played, campaign.tally, elapsed());
  if (!campaign.failure) return 0;
  fmt::print("shrinking the {} operations of seed {} ...\n", campaign.failure->kept.size(),
             campaign.failure->seed);
  std::fflush(stdout);
  fmt::print("{}", failure_text(kind, shrink(kind, *campaign.failure)));
  return 1;
}

int run(int argc, char** argv) {
  CLI::App app{
      "Plays random requests, cancels and steps against the real scheduler (or the whole engine, over a "
      "model "
      "that is nothing but its KV cache) and checks after each that no invariant of docs/invariants.md is "
      "broken. A seed is the same scenario everywhere; one that fails is shrunk and printed with the line "
      "that "
      "plays it again."};
  Flags flags;
  app.add_option("--world", flags.world, "what is driven")
      ->check(CLI::IsMember({"scheduler", "engine"}))
      ->capture_default_str();
  app.add_option("--first", flags.first, "the first seed")->capture_default_str();
  app.add_option("--seeds", flags.seeds, "how many seeds")->capture_default_str();
  app.add_option("--seconds", flags.seconds, "go on for so long instead");
  CLI::Option* one = app.add_option("--seed", flags.seed, "play this seed alone");
  app.add_option("--ops", flags.ops, "only these of its operations, as 0-3,7")->needs(one);
  app.add_flag("--list", flags.list, "say what the seed does, and do not play it")->needs(one);
  CLI11_PARSE(app, argc, argv);
  const WorldKind kind = flags.world == "engine" ? WorldKind::kEngine : WorldKind::kScheduler;
  return one->count() > 0 ? play_one(kind, flags) : play_many(kind, flags);
}

}  // namespace
}  // namespace kvasir::sim

int main(int argc, char** argv) {
  return kvasir::sim::run(argc, argv);
}
