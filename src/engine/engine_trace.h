#pragma once

#include <array>
#include <cstdint>
#include <mutex>
#include <string>
#include <string_view>

namespace kvasir {

// What the engine's thread does, written by it and read by others, so that a step that does not end can still
// be looked into. Writing takes a lock that nobody holds for long, and allocates nothing.
class EngineTrace {
 public:
  enum class Phase : uint8_t { kIdle, kPlanning, kComputing, kChoosing, kSaving };

  struct Work {  // one sequence of the step
    uint64_t request = 0;
    uint32_t choice = 0;
    uint32_t rows = 0, computed = 0, known = 0;
    std::array<char, 40> name{};  // the start of Request::external_id
  };
  struct State {
    Phase phase = Phase::kIdle;
    double phase_since = 0;  // monotonic seconds
    double moved = 0;        // when the thread last ended a step with rows, or had nothing to do
    double predicted = 0;    // seconds that the step was to take; 0: unknown
    uint32_t running = 0, waiting = 0, rows = 0;
    uint32_t blocks_used = 0, blocks_cached = 0, blocks_free = 0;
    uint32_t listed = 0;  // of the step's sequences, the first of `work`
    std::array<Work, 8> work{};
  };

  void enter(Phase phase, double now);
  // A step ended that computed something, or there is nothing to do: all is well.
  void move(double now);
  // Changes what is said of the step, under the lock.
  template <class F>
  void describe(F change) {
    const std::lock_guard lock(mutex_);
    change(state_);
  }
  State state() const;

 private:
  mutable std::mutex mutex_;
  State state_;
};

// "computing a step of 256 rows for 12.3 s" and so on; and all that is known, for the log.
std::string_view phase_name(EngineTrace::Phase phase);
std::string trace_summary(const EngineTrace::State& state, double now);
std::string trace_details(const EngineTrace::State& state);

}  // namespace kvasir
