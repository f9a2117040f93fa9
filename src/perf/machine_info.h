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

// The first line of /proc/stat, in ticks: of all time, and of the time a hypervisor gave to others.
struct CpuTicks {
  uint64_t total = 0;
  uint64_t stolen = 0;
};
CpuTicks read_cpu_ticks(const std::string& root = "");
// Part of the time between two readings that was stolen, 0..1.
double steal_between(const CpuTicks& before, const CpuTicks& after);

// "2026-11-29T21:30:00Z"
std::string utc_now();

}  // namespace kvasir
