#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace kvasir {

// What the operating system says about the machine. `root` is put before /proc and /sys, "" for the real
// ones; what cannot be read is "" or 0.

// "AMD EPYC 9B14", the first "model name" of /proc/cpuinfo.
std::string cpu_name(const std::string& root = "");

// CPUs this process may run on.
std::vector<uint32_t> allowed_cpus();

// Distinct (package, core) pairs among the CPUs; 0 when /sys does not say for every one. A hypervisor may say
// what it likes here.
uint32_t count_cores(const std::vector<uint32_t>& cpus, const std::string& root = "");

// Where the CPUs' time has gone, in seconds over all CPUs: the first line of /proc/stat, and this process's
// own.
struct CpuTimes {
  double total = 0;
  double busy = 0;    // of every process
  double stolen = 0;  // that a hypervisor gave to others
  double own = 0;
};
CpuTimes read_cpu_times(const std::string& root = "");

// The same between two readings as parts of the whole, 0..1.
struct CpuShares {
  double others = 0;  // other processes here
  double stolen = 0;
};
CpuShares shares_between(const CpuTimes& before, const CpuTimes& after);

// "2026-11-29T21:30:00Z"
std::string utc_now();

}  // namespace kvasir
