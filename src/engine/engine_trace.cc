#include "engine/engine_trace.h"

#include <fmt/format.h>

#include <iterator>

namespace kvasir {

void EngineTrace::enter(Phase phase, double now) {
  const std::lock_guard lock(mutex_);
  state_.phase = phase;
  state_.phase_since = now;
}

void EngineTrace::move(double now) {
  const std::lock_guard lock(mutex_);
  state_.moved = now;
}

EngineTrace::State EngineTrace::state() const {
  const std::lock_guard lock(mutex_);
  return state_;
}

std::string_view phase_name(EngineTrace::Phase phase) {
  switch (phase) {
    case EngineTrace::Phase::kIdle:
      return "waiting for work";
    case EngineTrace::Phase::kPlanning:
      return "planning a step";
    case EngineTrace::Phase::kComputing:
      return "computing a step";
    case EngineTrace::Phase::kChoosing:
      return "choosing tokens";
    case EngineTrace::Phase::kSaving:
      break;
  }
  return "saving KV blocks";
}

std::string trace_summary(const EngineTrace::State& s, double now) {
  return fmt::format("{} for {:.1f} s; {} running, {} waiting", phase_name(s.phase), now - s.phase_since,
                     s.running, s.waiting);
}

std::string trace_details(const EngineTrace::State& s) {
  std::string text = fmt::format("{} rows in the step, {} KV blocks used, {} cached, {} free", s.rows,
                                 s.blocks_used, s.blocks_cached, s.blocks_free);
  if (s.predicted > 0) fmt::format_to(std::back_inserter(text), "; it was to take {:.3f} s", s.predicted);
  for (uint32_t i = 0; i < s.listed; ++i) {
    const EngineTrace::Work& w = s.work[i];
    fmt::format_to(std::back_inserter(text), "; request {} ({}) choice {}: {} of {} tokens computed, {} rows",
                   w.request, std::string_view(w.name.data()), w.choice, w.computed, w.known, w.rows);
  }
  return text;
}

}  // namespace kvasir
