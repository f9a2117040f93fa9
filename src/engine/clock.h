#pragma once

#include <chrono>

namespace kvasir {

// Seconds of the monotonic clock.
inline double monotonic_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace kvasir
