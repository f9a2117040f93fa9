#pragma once

#include <optional>
#include <string>
#include <vector>

#include "apps/kvasir/model_bench.h"
#include "kernels/table.h"
#include "perf/hardware_profile.h"
#include "perf/machine_bench.h"
#include "perf/machine_info.h"

namespace kvasir {

// How near a test came to what the machine can do (perf/step_cost.h). The larger part bounds: no kernel could
// make the test faster than 1 / that part.
struct PeakParts {
  double read = 0;     // of the read rate for a step's working set
  double compute = 0;  // of the arithmetic peaks
  bool memory_bound() const { return read >= compute; }
};

// One line of the table.
struct BenchRow {
  std::string test = "";
  double tokens_per_second = 0;  // median
  double spread = 0;
  std::vector<double> samples = {};
  double gb_per_second = 0;    // weights and KV that had to be read, 10^9 bytes
  double gmac_per_second = 0;  // multiply-adds of the linear layers, 10^9
  std::optional<PeakParts> parts = std::nullopt;
  StepProfile profile = {};  // of all samples; empty unless profiled
};
BenchRow bench_row(const BenchResult& result, const HardwareProfile* machine, uint32_t threads);

// What all lines of a table share.
struct BenchSetting {
  std::string model = "";       // as the user named it
  std::string model_name = "";  // as the file does
  uint64_t parameters = 0;
  uint32_t threads = 0;
  Isa isa = Isa::kScalar;
  std::optional<HardwareProfile> machine = std::nullopt;
  std::string machine_source = "";  // "from FILE", "measured just now"
  std::optional<MachineProbe> before = std::nullopt, after = std::nullopt;
  CpuShares meanwhile = {};  // between the two
};

std::string md_head(const BenchSetting& setting);
std::string md_row(const BenchRow& row);
// The machine, and how it changed meanwhile; "" without one.
std::string md_foot(const BenchSetting& setting);
// A line per phase of a forward pass, a column per test: the share of its time.
std::string md_profile(const std::vector<BenchRow>& rows);
std::string csv_head();
std::string csv_row(const BenchRow& row);
// An array of one object per test.
std::string rows_json(const BenchSetting& setting, const std::vector<BenchRow>& rows);

}  // namespace kvasir
