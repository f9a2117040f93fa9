#pragma once

#include <string>

#include "apps/kvasir/plan_request.h"

namespace kvasir {

// `kvasir plan MODEL --check`: opens the model, runs check_predictions() here with the flags' machine, KV
// cache and threads, in the steps that kvasir serve takes, and prints predicted beside measured, `output` as
// md or json. Returns the exit code; flags that ask for what cannot be measured here (a published machine,
// other weights) are refused by name.
int run_plan_check(const PlanFlags& flags, const std::string& output);

}  // namespace kvasir
