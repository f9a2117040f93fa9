#pragma once

#include <string>
#include <vector>

#include "apps/kvasir/speculation_bench.h"

namespace kvasir {

// What all rows share.
struct SpeculationSetting {
  std::string model;
  uint32_t threads = 0;
  uint32_t tokens = 0, rounds = 0;
  double temperature = 0;
};

std::string speculation_md_head(const SpeculationSetting& setting);
std::string speculation_md_rows(const std::vector<SpeculationRow>& rows);
// How to read the columns, and whether any answer differed.
std::string speculation_md_foot(const std::vector<SpeculationRow>& rows);
std::string speculation_csv(const std::vector<SpeculationRow>& rows);
std::string speculation_json(const SpeculationSetting& setting, const std::vector<SpeculationRow>& rows);

// Tokens per verification against k, both formulas and what was measured; and tokens per second over those
// without speculation, by workload. For batch 1, or the smallest there is.
std::string speculation_svg(const SpeculationSetting& setting, const std::vector<SpeculationRow>& rows);

}  // namespace kvasir
