#include "apps/kvasir/plan_check.h"

#include <fmt/format.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "apps/kvasir/cli.h"
#include "apps/kvasir/engine_flags.h"
#include "apps/kvasir/machine_reference.h"
#include "apps/kvasir/model_bench.h"
#include "apps/kvasir/number_flag.h"
#include "apps/kvasir/output.h"
#include "apps/kvasir/prediction_check.h"
#include "base/thread_pool.h"
#include "engine/engine.h"

namespace kvasir {
namespace {

// The loads are fixed, and so is what they keep.
Status refuse_questions(const PlanFlags& f) {
  const PlanFlags none;
  const std::pair<const char*, bool> given[] = {
      {"--context", f.context != none.context},
      {"--prompt", f.prompt != none.prompt},
      {"--shared-prefix", f.shared_prefix != none.shared_prefix},
      {"--users", f.users != none.users},
      {"--ttft", f.ttft_ms != none.ttft_ms},
      {"--tpot", f.tpot_ms != none.tpot_ms},
      {"--memory", f.memory != none.memory},
      {"--acceptance", f.acceptance != none.acceptance},
  };
  for (const auto& [flag, is_given] : given) {
    if (is_given)
      return invalid_argument(
          fmt::format("--check runs loads of its own, prompts of 128 to 2048 tokens and up to 32 answers at "
                      "once: it takes no {}",
                      flag));
  }
  return {};
}

Status refuse_flags(const PlanFlags& f) {
  KVASIR_RETURN_IF_ERROR(refuse_questions(f));
  if (!f.weights.empty())
    return invalid_argument("--check runs the file's own weights: --weights cannot be checked");
  if (f.machine != "here" && f.machine.find('/') == std::string::npos && !f.machine.ends_with(".json"))
    return invalid_argument(fmt::format(
        "--check measures here: --machine {} cannot be checked, a profile of this machine can", f.machine));
  return {};
}

Result<MachineReference> check_machine(const PlanFlags& f, ThreadPool& pool, Isa isa) {
  if (f.machine == "here") return machine_reference(pool, isa, true);
  KVASIR_ASSIGN_OR_RETURN(HardwareProfile profile, load_machine(f.machine));
  return named_machine(std::move(profile), f.machine, pool, isa);
}

}  // namespace

int run_plan_check(const PlanFlags& f, const std::string& output) {
  constexpr const char* kHint = "`kvasir plan --help` explains the flags.";
  if (const Status sound = refuse_flags(f); !sound.ok()) return fail(kExitUsage, sound.message(), kHint);
  const Result<uint32_t> threads = threads_of_flag(f.threads, usable_cpus());
  if (!threads.ok()) return fail(kExitUsage, threads.message());
  const Result<KvType> kv = kv_type_of_flag(f.kv_cache_dtype);
  if (!kv.ok()) return fail(kExitUsage, kv.message());
  const Isa isa = best_isa();
  const EngineConfig engine;
  auto opened =
      ModelBench::open(f.model, {isa, *threads, engine.max_num_batched_tokens, engine.block_size, *kv});
  if (!opened.ok()) return fail_to_open(opened.status(), false);
  ModelBench& model = **opened;
  auto machine = check_machine(f, model.pool(), isa);
  if (!machine.ok())
    return fail(machine.status().code() == ErrorCode::kResourceExhausted ? kExitMemory : kExitUsage,
                "--machine: " + machine.message(), "`kvasir bench machine --output FILE` writes one.");
  const auto check = check_predictions(model, machine->profile,
                                       [](const std::string& test) { show_progress(test + " ..."); });
  end_progress();
  if (!check.ok())
    return fail(check.status().code() == ErrorCode::kResourceExhausted ? kExitMemory : kExitUsage,
                check.message());
  const PredictionSetting setting{.model = model.config().name,
                                  .machine = machine->source,
                                  .kernels = machine->profile.kernels.has_value(),
                                  .threads = *threads,
                                  .isa = std::string(isa_name(isa))};
  return print_or_fail(output == "json" ? prediction_json(setting, *check) : prediction_md(setting, *check));
}

}  // namespace kvasir
