#pragma once

#include <cstdint>
#include <memory>

#include "base/result.h"
#include "scenario.h"

namespace kvasir::sim {

// What happened in a scenario, to see that its operations reach what they should.
struct Tally {
  uint64_t operations = 0, checks = 0;
  uint64_t steps = 0, rows = 0;
  uint64_t requests = 0, finished = 0, cancelled = 0;  // the last two: choices
  uint64_t preemptions = 0;
  uint64_t hit_tokens = 0;    // served by the prefix cache,
  uint64_t partial_hits = 0;  // hits that end inside a block
  uint64_t copies = 0;        // of blocks
  uint64_t follows = 0;       // sequences that waited for another's blocks
  uint64_t forks = 0;
  uint64_t lent = 0;       // blocks that vanished for a while
  uint64_t evictions = 0;  // plans in which the cache gave up blocks
  uint64_t overtakes = 0;  // sequences that were let in before an older one, for their user or priority
  double seconds = 0;      // of the virtual clock
  uint64_t digest = 0;     // of every plan: two runs of a seed have the same

  Tally& operator+=(const Tally& other);
};

// One scenario being played. Errors say which invariant of docs/invariants.md is broken, and how.
class World {
 public:
  virtual ~World() = default;
  // Carries out one operation and checks everything.
  virtual Status apply(const Op& op) = 0;
  // Steps until nothing is left, and checks that everything ended once and every block came home.
  virtual Status finish() = 0;
  const Tally& tally() const { return tally_; }

 protected:
  void note(uint64_t value) { tally_.digest = (tally_.digest ^ value) * 0x100000001B3ull + 1; }
  Tally tally_;
};

std::unique_ptr<World> make_world(WorldKind kind, const Setup& setup);

// Plays a scenario to its end, or to the first error. `playing`, where given, always holds what has happened.
Status play(WorldKind kind, const Scenario& scenario, Tally* tally);

}  // namespace kvasir::sim
