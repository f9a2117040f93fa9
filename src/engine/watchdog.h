#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>

#include "base/result.h"
#include "engine/engine_trace.h"

namespace kvasir {

// Looks at an engine's trace now and then, from a thread of its own, and says when nothing has moved for too
// long: a step that does not end, or work that nobody takes up. It logs what it sees, once when it begins,
// again as often as the bound passes, and when the engine moves again. It cannot end a step that hangs;
// whoever runs the process learns of it by health() and can. Time in which the whole process stood still (a
// paused container, a suspended machine) is nobody's stall: only what passes while the watchdog itself runs
// counts.
class Watchdog {
 public:
  struct Options {
    double seconds = 120;  // without any movement
    // A step that was predicted to be long is given so many times that.
    double patience = 20;
  };
  // `work_waits_since`: when the oldest request came that the engine's thread has not taken; 0 where none
  // lies there. Both outlive this.
  Watchdog(const Options& options, const EngineTrace& trace, std::function<double()> work_waits_since);
  ~Watchdog();

  // kUnavailable, with what the engine is at, while it does not move.
  Status health() const;
  uint64_t stalls() const;  // seen so far

 private:
  void run();
  void look(double now);
  double awake_since(double begun, double now);

  Options options_;
  const EngineTrace& trace_;
  std::function<double()> work_waits_since_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  Status health_;
  uint64_t stalls_ = 0;
  double reported_ = 0;  // when it was last logged; 0: it moves
  double stalled_since_ = 0;
  double pause_ = 0;                        // between two looks
  double looked_ = 0;                       // at the last look: the time, and
  double awake_ = 0;                        // how much of it this thread has seen
  double watched_ = 0, watched_awake_ = 0;  // when what is waited for began, and awake_ then
  std::thread thread_;
};

}  // namespace kvasir
