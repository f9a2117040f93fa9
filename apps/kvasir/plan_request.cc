#include "apps/kvasir/plan_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/kvasir/human_size.h"
#include "apps/kvasir/machine_reference.h"
#include "base/thread_pool.h"
#include "engine/memory_plan.h"

namespace kvasir {
namespace {

constexpr double kMilli = 1e-3;

Result<MachineSpec> machine_here() {
  ThreadPool pool(usable_cpus());
  KVASIR_ASSIGN_OR_RETURN(MachineReference found, machine_reference(pool, best_isa(), false));
  MachineSpec machine = machine_from_profile(found.profile, usable_memory(read_memory()), found.source);
  if (machine.name.empty()) machine.name = "this machine";
  return machine;
}

Status set_formats(const PlanFlags& flags, PlanInput* input) {
  if (!flags.weights.empty()) {
    const Result<WeightFormat> format = parse_weight_format(flags.weights);
    if (!format.ok()) return invalid_argument("--weights: " + format.message());
    input->weights = *format;
  }
  const Result<KvFormat> kv = parse_kv_format(flags.kv_cache_dtype);
  if (!kv.ok()) return invalid_argument("--kv-cache-dtype: " + kv.message());
  input->kv = *kv;
  return {};
}

Status set_machine(const PlanFlags& flags, MachineSpec machine, PlanRequest* request) {
  PlanInput& input = request->input;
  if (!flags.memory.empty()) {
    const Result<uint64_t> size = parse_size(flags.memory);
    if (!size.ok()) return invalid_argument("--memory: " + size.message());
    machine.memory_bytes = *size;
  }
  if (flags.threads > 0) {
    if (!machine.profile)
      return invalid_argument(
          fmt::format("--threads needs a measured machine, and {} is a published one", machine.name));
    const uint32_t measured = machine.profile->threads;
    if (flags.threads > measured)
      return invalid_argument(
          fmt::format("--threads is {} and {} was measured with {}", flags.threads, machine.name, measured));
    request->threads = flags.threads;
    request->advice.whole_machine = machine;
    machine = with_threads(machine, flags.threads);
  }
  input.machine = std::move(machine);
  return {};
}

}  // namespace

Result<MachineSpec> plan_machine(const PlanFlags& flags) {
  Result<MachineSpec> machine = flags.machine == "here" ? machine_here() : resolve_machine(flags.machine, {});
  if (!machine.ok()) return Status(machine.status().code(), "--machine: " + machine.message());
  return machine;
}

Result<PlanRequest> plan_request(const PlanFlags& flags, ModelShape shape, MachineSpec machine) {
  PlanRequest request;
  request.model = flags.model;
  request.is_file = shape.stored_bytes.has_value();
  PlanInput& input = request.input;
  input.shape = std::move(shape);
  KVASIR_RETURN_IF_ERROR(set_formats(flags, &input));
  KVASIR_RETURN_IF_ERROR(set_machine(flags, std::move(machine), &request));
  const uint64_t longest = input.shape.max_context > 0 ? input.shape.max_context : kPlanContext;
  input.context = flags.context > 0 ? flags.context : std::min(kPlanContext, longest);
  input.prompt = flags.prompt > 0 ? flags.prompt : input.context;
  input.shared_prefix = flags.shared_prefix;
  KVASIR_RETURN_IF_ERROR(check_plan(input));
  if (flags.users > 0) request.goals.users = flags.users;
  if (flags.ttft_ms > 0) request.goals.ttft_seconds = flags.ttft_ms * kMilli;
  if (flags.tpot_ms > 0) request.goals.tpot_seconds = flags.tpot_ms * kMilli;
  request.advice.acceptance = flags.acceptance;
  return request;
}

}  // namespace kvasir
