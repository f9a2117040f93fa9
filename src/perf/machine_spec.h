#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "perf/hardware_profile.h"

namespace kvasir {

// What a machine can do at most, published or measured: the one type that planning sees. Rates are per
// second; multiply-adds count as one (a data sheet's FLOP/s and TOPS halved), dense, without structured
// sparsity.
struct MachineSpec {
  // By the kind of the numbers multiplied. 0: not published, or no such instructions.
  struct Peaks {
    double f32_macs = 0;
    double f16_macs = 0;   // bf16 or f16 with sums in f32
    double int8_macs = 0;  // int8 into int32
  };
  enum class Kind { kCpu, kGpu, kSoc };

  std::string name;
  Kind kind = Kind::kCpu;
  std::string source;         // URL of the numbers, or the path of a measured profile
  std::string note;           // what the numbers assume: memory modules, clock
  uint64_t memory_bytes = 0;  // 0: not known
  double bandwidth = 0;       // of memory, bytes per second
  Peaks peaks;
  uint32_t cores = 0;  // of a GPU: streaming multiprocessors; 0: not known
  // Parts of the published numbers that a source says are typically reached; 1 where none does, and for a
  // measured machine, whose numbers were reached.
  double reachable_bandwidth = 1;
  double reachable_compute = 1;
  std::string reachable_source;            // "" where no source says so
  std::optional<HardwareProfile> profile;  // what it was made from, for rates by working set

  // The rate for numbers of so many bits: int8 up to 8, f16 up to 16, else f32. Where a kind's peak is 0 the
  // next wider one that is known, for that is what the machine would then use.
  double macs(uint32_t bits) const;
  // Bytes per second of reading a working set of that size again and again: a measured machine's by size
  // (caches), else of memory.
  double read_rate(uint64_t bytes) const;
};
std::string_view machine_kind_name(MachineSpec::Kind kind);  // "cpu", "gpu", "soc"

// A measured machine: bandwidth is that of the largest working set by all threads, peaks are all threads'.
// `memory_bytes` is what the caller knows of its memory; 0: nothing.
MachineSpec machine_from_profile(const HardwareProfile& profile, uint64_t memory_bytes, std::string source);

// From the table data/machines.json, built into the program; names as in shape_by_name(). kNotFound suggests
// the nearest.
Result<MachineSpec> machine_by_name(std::string_view name);
std::vector<std::string> known_machine_names();

// What "here" means to resolve_machine().
struct HereMachine {
  std::string profile_path;  // what `kvasir bench machine` left; "" where there is no such place
  uint64_t memory_bytes = 0;
};
// What a person names a machine by: "here", the path of a measured profile (a text with '/' or ending in
// .json), or a name of the table. kNotFound for "here" without a profile says how to measure one.
Result<MachineSpec> resolve_machine(const std::string& text, const HereMachine& here);

}  // namespace kvasir
