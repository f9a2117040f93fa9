#include "engine/watchdog.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/log.h"
#include "engine/clock.h"

namespace kvasir {

Watchdog::Watchdog(const Options& options, const EngineTrace& trace, std::function<double()> work_waits_since)
    : options_(options),
      trace_(trace),
      work_waits_since_(std::move(work_waits_since)),
      pause_(std::min(1.0, options.seconds / 4)),
      looked_(monotonic_seconds()) {
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

Status Watchdog::health() const {
  const std::lock_guard lock(mutex_);
  return health_;
}

uint64_t Watchdog::stalls() const {
  const std::lock_guard lock(mutex_);
  return stalls_;
}

void Watchdog::run() {
  const std::chrono::duration<double> pause(pause_);
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, pause, [this] { return stop_; })) {
    lock.unlock();
    look(monotonic_seconds());
    lock.lock();
  }
}

// Seconds since `begun` in which the process ran, as far as looks can tell: of a gap between two looks that
// is longer than two pauses, two pauses.
double Watchdog::awake_since(double begun, double now) {
  const double gap = std::min(now - looked_, 2 * pause_);
  looked_ = now;
  awake_ += gap;
  if (begun != watched_) {
    watched_ = begun;
    watched_awake_ = awake_ - std::min(now - begun, gap);
  }
  return awake_ - watched_awake_;
}

void Watchdog::look(double now) {
  const EngineTrace::State state = trace_.state();
  const bool idle = state.phase == EngineTrace::Phase::kIdle;
  const double since = idle ? work_waits_since_() : state.moved;  // 0: nothing is to do
  const double bound = std::max(options_.seconds, options_.patience * state.predicted);
  const double still = awake_since(std::max(since, state.moved), now);
  const bool stalled = since > 0 && still > bound;
  const std::lock_guard lock(mutex_);
  if (!stalled) {
    if (!health_.ok()) spdlog::warn("the engine moves again after {:.1f} s", now - stalled_since_);
    health_ = {};
    reported_ = 0;
    return;
  }
  if (health_.ok()) {
    ++stalls_;
    stalled_since_ = now - still;
  }
  health_ =
      unavailable(fmt::format("the engine has not moved for {:.1f} s: {}", still, trace_summary(state, now)));
  if (reported_ != 0 && now - reported_ < bound) return;
  reported_ = now;
  spdlog::error("{}. {}", health_.message(), trace_details(state));
}

}  // namespace kvasir
