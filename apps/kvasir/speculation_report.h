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

// Tokens to expect of a verification of k guesses, each right with a chance of `acceptance` if those before
// it are: (1 - a^(k+1)) / (1 - a), with the token that is chosen after the last right guess (Leviathan et
// al., arXiv 2211.17192, eq. 1); and (1 - a^k) / (1 - a), as engines count that do without it after full
// acceptance.
double tokens_with_bonus(double acceptance, double k);
double tokens_without_bonus(double acceptance, double k);

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
