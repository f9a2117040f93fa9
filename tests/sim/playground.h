#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "world.h"

namespace kvasir::sim {

// How a scenario failed: what a broken invariant says, or how the process died (a CHECK, a sanitizer).
struct Failure {
  uint64_t seed = 0;
  std::vector<uint32_t> kept;  // operations of the scenario that were played
  std::string what;
};

// Plays a scenario with only the operations `kept` in a child process, so that a CHECK that aborts is a
// failure like any other.
std::optional<Failure> play_apart(WorldKind kind, uint64_t seed, const std::vector<uint32_t>& kept);

// Seeds one after the other, in children that play many each, until `go_on` says no or one fails.
struct Campaign {
  uint64_t played = 0;
  Tally tally;
  std::optional<Failure> failure;  // with every operation kept
};
Campaign play_seeds(WorldKind kind, uint64_t first, const std::function<bool(uint64_t played)>& go_on);

// The failure with as few operations as leaving them out one by one or by halves finds (Zeller and
// Hildebrandt, "Simplifying and isolating failure-inducing input", IEEE TSE 28(2), 2002).
Failure shrink(WorldKind kind, const Failure& failure);

// "0-3,7": lists of operations as command lines hold them. nullopt: it is no such list.
std::string list_text(const std::vector<uint32_t>& list);
std::optional<std::vector<uint32_t>> parse_list(const std::string& text);
std::vector<uint32_t> all_operations(WorldKind kind, uint64_t seed);

// What to tell about a failure: the operations, what broke, and the line that plays it again.
std::string failure_text(WorldKind kind, const Failure& failure);

}  // namespace kvasir::sim
