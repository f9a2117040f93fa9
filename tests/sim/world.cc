#include "world.h"

#include "engine_world.h"
#include "scheduler_world.h"

namespace kvasir::sim {

Tally& Tally::operator+=(const Tally& o) {
  operations += o.operations;
  checks += o.checks;
  steps += o.steps;
  rows += o.rows;
  requests += o.requests;
  finished += o.finished;
  cancelled += o.cancelled;
  preemptions += o.preemptions;
  hit_tokens += o.hit_tokens;
  partial_hits += o.partial_hits;
  copies += o.copies;
  follows += o.follows;
  forks += o.forks;
  lent += o.lent;
  evictions += o.evictions;
  overtakes += o.overtakes;
  seconds += o.seconds;
  digest = digest * 31 + o.digest;
  return *this;
}

std::unique_ptr<World> make_world(WorldKind kind, const Setup& setup) {
  if (kind == WorldKind::kEngine) return std::make_unique<EngineWorld>(setup);
  return std::make_unique<SchedulerWorld>(setup);
}

Status play(WorldKind kind, const Scenario& scenario, Tally* tally) {
  const std::unique_ptr<World> world = make_world(kind, scenario.setup);
  Status status;
  for (const Op& op : scenario.ops) {
    status = world->apply(op);
    if (!status.ok()) break;
  }
  if (status.ok()) status = world->finish();
  *tally += world->tally();
  return status;
}

}  // namespace kvasir::sim
