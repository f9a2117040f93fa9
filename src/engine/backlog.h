#pragma once

#include <cstdint>

#include "engine/scheduler.h"
#include "perf/perf_model.h"

namespace kvasir {

// How long the engine will need for what it has taken on. Work is rows of prompts not yet computed, and
// tokens of answers: as many as answers had lately on the mean, at most those asked for, and as many again
// for those that run, however far they are (as if lengths were geometric). Prompts take the time of rows in
// full steps, answers that of decodes with as many beside them as there are; where steps are not predicted,
// both take what rows took lately.
class BacklogForecast {
 public:
  // `costs` may be null, else outlives this. `rows`: of a full step; `slots`: sequences that run at once.
  BacklogForecast(const StepCosts* costs, uint32_t rows, uint32_t slots);

  void on_step(uint32_t rows, double seconds);
  void on_answer(uint32_t tokens);  // one came to its end

  struct Seconds {
    double all = 0;      // until everything is done
    double waiting = 0;  // until what waits now has begun: its own work, and half of what runs
  };
  Seconds estimate(const Scheduler& scheduler);

  double mean_answer() const { return mean_answer_; }

 private:
  void update_rates(uint32_t decodes);

  const StepCosts* costs_;
  uint32_t rows_, slots_;
  double mean_answer_ = 128;                // tokens, until answers say otherwise
  double seconds_per_row_ = 0;              // of late, measured
  double prompt_row_ = 0, answer_row_ = 0;  // seconds each
  uint32_t rated_decodes_ = 0;              // what answer_row_ is of
  uint32_t age_ = 0;                        // estimates since the rates were updated
};

}  // namespace kvasir
