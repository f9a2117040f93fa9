#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "perf/derivation.h"
#include "perf/plan.h"
#include "perf/plan_speculation.h"

namespace kvasir {

// What a plan comes to for the user, at PlanGoals::batch() conversations.
struct PlanOutcome {
  bool predicted = false;  // times as the engine predicts them, else floors
  uint64_t batch = 1;      // conversations whose tokens are timed
  double ttft = 0;
  double tpot = 0;
  double throughput = 0;
  double memory_bytes = 0;                     // for that batch
  std::optional<uint64_t> conversations = {};  // that fit in memory
  bool ttft_met = true, tpot_met = true;       // true where nothing was asked
  bool users_met = true;                       // the batch fits in memory

  bool all_met() const { return ttft_met && tpot_met && users_met; }
};
PlanOutcome plan_outcome(const PlanInput& input, const PlanGoals& goals);

// What advice is ranked by: the goal that is missed by most or, when all are met, met by least; without goals
// the time per token of one conversation.
enum class PlanObjective { kTtft, kTpot, kMemory };
PlanObjective plan_objective(const PlanInput& input, const PlanGoals& goals);
std::string_view plan_objective_name(PlanObjective objective);  // "time to first token", ...

// What advice assumes.
struct AdviceOptions {
  // Chance that a token copied from the prompt is accepted, for speculation by prompt lookup. The default is
  // the a of (1 - a^11) / (1 - a) = 1.74 tokens per step, which Spec-Bench measured for it with 10 drafts
  // (Xia et al. 2024, arXiv 2401.07851, Vicuna 7B, greedy).
  double acceptance = 0.425;
  // The machine with all its threads, when the plan uses fewer.
  std::optional<MachineSpec> whole_machine = {};
};

// One change, and the plan run again with it.
struct PlanAdvice {
  std::string id;      // "weights_Q4_K_M", "kv_int8", "context", "batch_limit", "speculation",
                       // "shared_prefix", "threads", "machine_H100_SXM"
  std::string change;  // "weights as Q4_K_M (4.89 bits each) instead of BF16 (16)"
  std::string how;     // the flag or the command that does it, or what it needs
  double gain = 1;     // of the objective: before / after, so that 2 is twice as good; floors before and
                       // after where the engine cannot predict what comes after
  PlanOutcome after;
};

// Every change that betters something by half a per cent or more, the largest gain on the objective first; of
// equal ones the one that betters the other numbers more. Derived, not felt: each is a plan of its own.
std::vector<PlanAdvice> plan_advice(const PlanInput& input, const PlanGoals& goals,
                                    const AdviceOptions& options);

// Appends advice_<id>_ttft, _tpot, _memory, _conversations (where memory is known) and _gain to a plan's
// derivation that has batch_<B>_... of the goals' batch, and a prediction where `after` is one.
void derive_advice(Derivation& derivation, PlanObjective objective, const PlanOutcome& before,
                   const std::vector<PlanAdvice>& advice);

}  // namespace kvasir
