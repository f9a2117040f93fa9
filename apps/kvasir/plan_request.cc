#include "apps/kvasir/plan_request.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "apps/kvasir/human_size.h"
#include "apps/kvasir/machine_reference.h"
#include "base/thread_pool.h"
#include "engine/engine.h"
#include "engine/memory_plan.h"
#include "gguf/gguf_file.h"

namespace kvasir {
namespace {

constexpr double kMilli = 1e-3;

Result<MachineSpec> machine_here(bool kernels) {
  ThreadPool pool(usable_cpus());
  KVASIR_ASSIGN_OR_RETURN(MachineReference found, machine_reference(pool, best_isa(), kernels));
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

Result<PlanPredictor::Model> engine_model(const GgufFile& file) {
  PlanPredictor::Model model;
  KVASIR_ASSIGN_OR_RETURN(model.config, read_model_config(file.metadata()));
  KVASIR_ASSIGN_OR_RETURN(model.weights, read_weight_sizes(file, model.config));
  return model;
}

// Gives the plan its predictor, or says why it has none. `profile`: of the machine with all its threads.
void set_predictor(const std::optional<HardwareProfile>& profile, Result<PlanPredictor::Model> engine,
                   PlanRequest* request) {
  PlanInput& input = request->input;
  const Result<KvType> kv = parse_kv_type(input.kv.name);
  if (!engine.ok())
    request->no_prediction = engine.message();
  else if (!profile)
    request->no_prediction = fmt::format("nobody measured the kernels on {}", input.machine.name);
  else if (!profile->kernels)
    request->no_prediction =
        fmt::format("{} holds no kernel rates, which `kvasir bench machine` measures", input.machine.source);
  else if (input.weights)
    request->no_prediction = fmt::format("the file holds other weights than {}", input.weights->name);
  else if (!kv.ok())
    request->no_prediction = fmt::format("the engine keeps no KV cache as {}", input.kv.name);
  if (!request->no_prediction.empty()) return;
  input.predictor = std::make_shared<const PlanPredictor>(
      std::move(engine).value(), *profile,
      PerfModel::Options{.threads = input.machine.profile->threads,
                         .kv_type = *kv,
                         .max_rows = EngineConfig().max_num_batched_tokens});
}

}  // namespace

Result<PlanModel> plan_model(const std::string& name) {
  std::optional<GgufFile> file;
  PlanModel model;
  KVASIR_ASSIGN_OR_RETURN(model.shape, resolve_shape(name, &file));
  if (file) model.engine = engine_model(*file);
  return model;
}

Result<MachineSpec> plan_machine(const PlanFlags& flags, bool kernels) {
  Result<MachineSpec> machine =
      flags.machine == "here" ? machine_here(kernels) : resolve_machine(flags.machine, {});
  if (!machine.ok()) return Status(machine.status().code(), "--machine: " + machine.message());
  return machine;
}

Result<PlanRequest> plan_request(const PlanFlags& flags, PlanModel model, MachineSpec machine) {
  PlanRequest request;
  request.model = flags.model;
  request.is_file = model.shape.stored_bytes.has_value();
  PlanInput& input = request.input;
  input.shape = std::move(model.shape);
  KVASIR_RETURN_IF_ERROR(set_formats(flags, &input));
  const std::optional<HardwareProfile> whole = machine.profile;
  KVASIR_RETURN_IF_ERROR(set_machine(flags, std::move(machine), &request));
  set_predictor(whole, std::move(model.engine), &request);
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
