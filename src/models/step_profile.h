#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace kvasir {

// The phases of a forward pass, as the first thread sees them: each with the barrier at its end.
enum class StepPhase : uint8_t { kEmbed, kNorm, kQkv, kAttention, kAttnOut, kRouter, kGateUp, kDown, kHead };
inline constexpr size_t kStepPhases = 9;
inline constexpr std::array<std::string_view, kStepPhases> kStepPhaseNames = {
    "embedding", "norm + quantise",  "q, k, v", "rope, KV, attention", "attention output",
    "router",    "gate, up, SwiGLU", "down",    "output head"};

// Where the time of some forward passes went, in seconds per phase.
struct StepProfile {
  std::array<double, kStepPhases> seconds{};

  double total() const {
    double sum = 0;
    for (double s : seconds) sum += s;
    return sum;
  }
};

// Deals the time since the last mark to a phase. Costs nothing but a test where nobody asked.
class PhaseClock {
 public:
  explicit PhaseClock(StepProfile* profile) : profile_(profile) {
    if (profile_ != nullptr) last_ = Clock::now();
  }
  void mark(StepPhase phase) {
    if (profile_ == nullptr) return;
    const Clock::time_point now = Clock::now();
    profile_->seconds[static_cast<size_t>(phase)] += std::chrono::duration<double>(now - last_).count();
    last_ = now;
  }

 private:
  using Clock = std::chrono::steady_clock;
  StepProfile* profile_;
  Clock::time_point last_;
};

}  // namespace kvasir
