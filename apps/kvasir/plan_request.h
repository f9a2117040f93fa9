#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "base/result.h"
#include "perf/plan.h"
#include "perf/plan_advice.h"
#include "perf/plan_predictor.h"

namespace kvasir {

// The flags that say what is to be planned, as they stand on the command line; "" and 0: not given.
struct PlanFlags {
  std::string model = {};
  std::string machine = "here";
  std::string memory = {};
  std::string weights = {};
  std::string kv_cache_dtype = "auto";
  uint64_t context = 0;
  uint64_t prompt = 0;
  uint64_t shared_prefix = 0;
  uint64_t users = 0;
  uint32_t threads = 0;
  double ttft_ms = 0;
  double tpot_ms = 0;
  double acceptance = AdviceOptions().acceptance;
};

// What the flags come to: everything that a plan, or a check of one against a measurement, starts from.
struct PlanRequest {
  std::string model;     // as the user named it
  bool is_file = false;  // a GGUF file, which kvasir serve could open
  PlanInput input;
  PlanGoals goals;
  AdviceOptions advice;
  uint32_t threads = 0;  // 0: all
  // Where the plan has no predictor: why, as the end of a sentence; else "".
  std::string no_prediction = {};
};

inline constexpr uint64_t kPlanContext = 4096;  // without --context, if the model reaches so far

inline constexpr const char* kNoFile = "only a GGUF file says how its weights lie in memory";

// A model as a user named it. `engine`: what the engine would make of a GGUF file, by its header alone; an
// error where there is none or the engine does not run it.
struct PlanModel {
  ModelShape shape;
  Result<PlanPredictor::Model> engine = unsupported(kNoFile);
};
// Opens what is named, once. Errors are those of resolve_shape().
Result<PlanModel> plan_model(const std::string& name);

// The machine of --machine: a name of the table, a profile's path, or "here", for which the profile that
// `kvasir bench machine` left is taken, or else a quick measurement; `kernels`: of the kernels too. Errors
// name the flag.
Result<MachineSpec> plan_machine(const PlanFlags& flags, bool kernels = false);

// A model that the engine runs, on a machine whose kernels were measured, gives the plan a predictor.
// kInvalidArgument names the flag, or both numbers of what cannot be.
Result<PlanRequest> plan_request(const PlanFlags& flags, PlanModel model, MachineSpec machine);

}  // namespace kvasir
