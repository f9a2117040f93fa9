#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "perf/derivation.h"
#include "perf/plan.h"

namespace kvasir {

// What speculation would give at a batch: a step with k drafts per conversation computes k + 1 rows of each,
// and V(k + 1) = its time over that of a plain step decides (perf/speculation_formulas.h). Drafts are taken
// to cost nothing, as those of prompt lookup.
struct PlanSpeculation {
  // One number of drafts a step.
  struct Row {
    uint32_t drafts = 0;
    double verify = 1;             // V(drafts + 1)
    double break_even = 1;         // least chance of acceptance at which it pays; above 1: none does
    std::vector<double> speedups;  // tokens per second over those without, at each of `acceptances`
  };
  uint64_t batch = 1;
  double acceptance = 0;            // that was asked about
  std::vector<double> acceptances;  // ascending, among them the one that was asked about
  std::vector<Row> rows;            // ascending
  // At `acceptance`: the best of the rows, or null where none pays.
  const Row* best() const;
  double speedup(const Row& row) const;  // at `acceptance`
  double tokens(const Row& row) const;   // per step, at `acceptance`
};
PlanSpeculation plan_speculation(const PlanInput& input, uint64_t batch, double acceptance);

// Appends speculation_<k>_verify of each row, and speculation_<k>_at_<acceptance>_gain of each acceptance, to
// a plan's derivation that has batch_<B>_tpot of the batch.
void derive_plan_speculation(Derivation& derivation, const PlanSpeculation& speculation);
// "speculation_3_verify" for 3; "speculation_3_at_0_6_gain" for 3 and 0.6.
std::string speculation_id(uint32_t drafts);
std::string speculation_id(uint32_t drafts, double acceptance);

}  // namespace kvasir
