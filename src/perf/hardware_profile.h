#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "kernels/table.h"
#include "perf/kernel_rates.h"

namespace kvasir {

// What a machine can do at most, as measure_machine() found it. SI units throughout: seconds, bytes, hertz,
// and rates per second. Everything that predicts or judges a speed divides by these.
struct HardwareProfile {
  static constexpr uint32_t kVersion = 3;  // of the JSON; a file of another version is refused
  // What threads read from caches of their own.
  static constexpr uint64_t kCachedBytes = uint64_t{1} << 20;

  // A rate of one thread alone, and of all threads together.
  struct Rate {
    double one_thread = 0;
    double all_threads = 0;
  };
  // Bytes per second of reading a working set of `bytes` again and again, dealt out evenly over the threads.
  struct ReadRate {
    uint64_t bytes = 0;
    Rate rate;
  };

  std::string cpu;          // as /proc/cpuinfo names it
  Isa isa = Isa::kScalar;   // whose instructions were timed
  std::string measured_at;  // UTC, "2026-11-29T21:30:00Z"
  uint32_t threads = 1;     // what "all threads" means
  uint32_t cores = 0;       // distinct cores that /sys puts this process's CPUs on; 0 where it does not say
  double clock_hz = 0;
  Rate int8_macs;               // multiply-adds of int8 into int32
  Rate f32_macs;                // f32 multiply-adds: two floating-point operations each
  std::vector<ReadRate> reads;  // ascending bytes, at least one
  double barrier_seconds = 0;   // of all threads meeting once
  double others = 0;            // part of the CPU time that other processes used meanwhile, 0..1
  double steal = 0;             // and that the hypervisor gave to other machines
  // What the kernels reach; none of a machine of which only the peaks are known.
  std::optional<KernelRates> kernels;

  // Read rate of a working set of this size by so many threads. A cache of C bytes holds C / S of a set of S
  // that is too large for it, so between measured sizes the time of a byte is linear in 1 / S; outside them
  // it is that of the nearest.
  double read_rate(uint64_t bytes, uint32_t threads_used) const;
  double int8_rate(uint32_t threads_used) const;
  double f32_rate(uint32_t threads_used) const;

  // All threads' int8 rate over one thread's: near `threads` on cores of their own, near 1 on one shared
  // core.
  double scaling() const { return int8_macs.all_threads / int8_macs.one_thread; }
  // Whether threads get clearly less than a core each, be it that they share one or that others use it.
  bool shares_cores() const { return threads > 1 && scaling() < 0.7 * threads; }

  // Whether it was measured while others used so much of the CPUs that the rates of all threads are too low.
  bool disturbed() const { return others > kUndisturbed; }
  static constexpr double kUndisturbed = 0.1;

  // One key per line. from_json(to_json(p)) is p.
  std::string to_json() const;
  // kInvalidArgument names the key and what is wrong with it.
  static Result<HardwareProfile> from_json(std::string_view text);
};

// The profile in a file. kNotFound: there is no such file. Errors name the path.
Result<HardwareProfile> load_machine(const std::string& path);

}  // namespace kvasir
