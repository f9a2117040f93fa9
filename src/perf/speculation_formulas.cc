#include "perf/speculation_formulas.h"

#include <algorithm>
#include <cmath>

namespace kvasir {

double expected_tokens_per_step(double acceptance, double drafts) {
  if (acceptance >= 1) return drafts + 1;
  return (1 - std::pow(acceptance, drafts + 1)) / (1 - acceptance);
}

double expected_accepted(double acceptance, uint32_t drafts) {
  return expected_tokens_per_step(acceptance, drafts) - 1;
}

double speculation_speedup(double acceptance, uint32_t drafts, double draft_cost, double verify_cost) {
  return expected_tokens_per_step(acceptance, drafts) / (verify_cost + drafts * draft_cost);
}

DraftChoice best_drafts(double acceptance, double draft_cost, const VerifyCost& verify_cost, uint32_t most) {
  DraftChoice best;
  for (uint32_t k = 1; k <= most; ++k) {
    const double speedup = speculation_speedup(acceptance, k, draft_cost, verify_cost(k + 1));
    if (speedup > best.speedup) best = {k, speedup};
  }
  return best;
}

VerifyCost roofline_verify_cost(double rows_per_read) {
  return [rows_per_read](uint32_t rows) { return std::max(1.0, rows / rows_per_read); };
}

}  // namespace kvasir
