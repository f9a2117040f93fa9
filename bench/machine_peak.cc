#include "machine_peak.h"

#include <time.h>

#include <algorithm>

#include "kernels/peak.h"

namespace kvasir::bench {
namespace {

constexpr uint64_t kRounds = 200'000;
constexpr int kAttempts = 5;
constexpr size_t kLeastRead = size_t{16} << 20;  // long against a look at the clock

double best_rate(void (*rounds)(uint64_t), uint32_t work_per_round) {
  double best = 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    const double begin = thread_seconds();
    rounds(kRounds);
    best = std::max(best, double{1} * kRounds * work_per_round / (thread_seconds() - begin));
  }
  return best;
}

}  // namespace

double thread_seconds() {
  timespec t;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

double int8_peak(Isa isa) {
  const PeakTable& peaks = peak_table(isa);
  return best_rate(peaks.int8_rounds, peaks.int8_macs_per_round);
}

double f32_peak(Isa isa) {
  const PeakTable& peaks = peak_table(isa);
  return best_rate(peaks.f32_rounds, peaks.f32_macs_per_round);
}

double read_bandwidth(Isa isa, const std::byte* data, size_t bytes) {
  double best = 0;
  for (const uint32_t streams : {1u, kReadStreams}) {
    const size_t passes = std::max<size_t>(1, kLeastRead / bytes);
    const double begin = thread_seconds();
    for (size_t pass = 0; pass < passes; ++pass) peak_table(isa).read(data, bytes, streams);
    best = std::max(best, static_cast<double>(passes * bytes) / (thread_seconds() - begin));
  }
  return best;
}

}  // namespace kvasir::bench
