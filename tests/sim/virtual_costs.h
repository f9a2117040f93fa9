#pragma once

#include "perf/perf_model.h"

namespace kvasir::sim {

// Steps that take a fixed time, a time per row and one per position seen: the virtual clock of scenarios.
class VirtualCosts final : public StepCosts {
 public:
  void add(StepLoad& load, const StepRows& s, LogitRows logits) const override {
    load.rows += s.rows;
    load.logits.rows += logits.rows;
    load.attention[0].all += 1e-6 * s.rows * (s.context + s.rows);
  }
  double seconds(const StepLoad& load) const override {
    return 2e-3 + 0.5e-3 * load.rows + 0.2e-3 * load.logits.rows + load.attention[0].all;
  }
};

}  // namespace kvasir::sim
