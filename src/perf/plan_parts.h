#pragma once

#include <string>

#include "perf/derivation.h"
#include "perf/plan.h"

// Shared by the files that make up derive_plan().
namespace kvasir::plan_parts {

inline constexpr const char* kBook =
    "How to Scale Your Model, \"Inference\": https://jax-ml.github.io/scaling-book/inference";
inline constexpr const char* kRoofline =
    "Williams, Waterman and Patterson 2009, Roofline: https://doi.org/10.1145/1498765.1498785";
inline constexpr const char* kKaplan = "Kaplan et al. 2020, section 2.1: https://arxiv.org/abs/2001.08361";
inline constexpr const char* kDeepSeek = "DeepSeek-V2, section 2: https://arxiv.org/abs/2405.04434";
inline constexpr const char* kPrefix =
    "Kwon et al. 2023, PagedAttention, section 4.4: https://arxiv.org/abs/2309.06180";

struct Parts {
  const PlanInput& input;
  Derivation& out;
};

// A step of the plan: what it does, the beginning of its quantities' ids, and what to call it.
struct Step {
  StepShape shape;
  std::string prefix;  // "prefill_", "batch_8_"
  std::string name;    // "a step of 8"
  bool decode = true;  // one row per sequence, which sees kv_positions; else prefill_pairs and prefill_seen
};

// <kind>_weights of every kind of matrix.
void add_weights(const Parts& parts);
// prefill_pairs and prefill_seen.
void add_prefill_positions(const Parts& parts);
// The FLOPs, bytes and seconds of every kind, and the step's seconds under the id `total`.
void add_step(const Parts& parts, const Step& step, std::string total, std::string title);
// Where the plan has a predictor: what the step's prediction is made of, the prediction, and the part of the
// floor's speed that it reaches. After add_step() of the same total.
void add_predicted(const Parts& parts, const Step& step, const std::string& total, const std::string& title);

}  // namespace kvasir::plan_parts
