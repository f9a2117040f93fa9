#include "perf/plan.h"

#include <fmt/format.h>

#include <algorithm>

#include "perf/kv_formulas.h"
#include "perf/parameter_formulas.h"

namespace kvasir {
namespace {

constexpr std::string_view kAttentionWork = "attention";  // the kind of step_work() that is no matrix
constexpr uint64_t kLongestTable = 256;                   // batches that are powers of two end here

double parameters_in_memory(const PlanInput& input) {
  return parameter_bytes(input.shape, input.weights ? &*input.weights : nullptr);
}

double shared_bytes(const PlanInput& input) {
  return kv_bytes_per_sequence(input.shape, input.kv, input.shared_prefix);
}

// The largest n of 0 .. most for which `holds`, where it never becomes true again once it is false; else one
// for which it holds and of whose next it does not (measured rates of few more rows may be a little lower).
template <class Holds>
uint64_t last_that_holds(uint64_t most, const Holds& holds) {
  uint64_t yes = 0, no = most + 1;
  while (no - yes > 1) {
    const uint64_t middle = yes + (no - yes) / 2;
    (holds(middle) ? yes : no) = middle;
  }
  return yes;
}

bool fits(const PlanInput& input, uint64_t batch) {
  return input.machine.memory_bytes == 0 ||
         memory_needed(input, batch) <= static_cast<double>(input.machine.memory_bytes);
}

}  // namespace

PlanInput with_weights(const PlanInput& input, const WeightFormat& weights) {
  PlanInput other = floor_of(input);
  other.weights = weights;
  return other;
}

PlanInput with_kv(const PlanInput& input, const KvFormat& kv) {
  PlanInput other = input;
  other.kv = kv;
  const Result<KvType> kept = parse_kv_type(kv.name);
  if (input.predictor) other.predictor = kept.ok() ? input.predictor->with_kv(*kept) : nullptr;
  return other;
}

PlanInput with_machine(const PlanInput& input, const MachineSpec& machine) {
  PlanInput other = floor_of(input);
  other.machine = machine;
  return other;
}

PlanInput floor_of(const PlanInput& input) {
  PlanInput other = input;
  other.predictor = nullptr;
  return other;
}

uint32_t matrix_bits(const PlanInput& input) {
  constexpr double kInt8Kernels = 9;  // Q8_0 takes 8.5
  return input.machine.kind == MachineSpec::Kind::kCpu && input.weight_format().bits <= kInt8Kernels ? 8 : 16;
}

uint32_t attention_bits(const PlanInput& input) {
  return input.machine.kind == MachineSpec::Kind::kCpu ? 32 : 16;
}

double reachable_flops(const MachineSpec& machine, uint32_t bits) {
  return 2 * machine.macs(bits) * machine.reachable_compute;
}

double reachable_bandwidth(const MachineSpec& machine, double bytes) {
  return machine.read_rate(static_cast<uint64_t>(bytes)) * machine.reachable_bandwidth;
}

double StepTime::seconds() const {
  double sum = 0;
  for (const KindTime& kind : kinds) sum += kind.seconds();
  return sum;
}

double StepTime::read_seconds() const {
  double sum = 0;
  for (const KindTime& kind : kinds) sum += kind.read_seconds;
  return sum;
}

double StepTime::compute_seconds() const {
  double sum = 0;
  for (const KindTime& kind : kinds) sum += kind.compute_seconds;
  return sum;
}

StepTime step_time(const PlanInput& input, const StepShape& step) {
  const StepFormats formats{
      .weights = input.weights ? &*input.weights : nullptr, .kv = input.kv, .activation_bytes = 0};
  const std::vector<LayerWork> layers = step_work(input.shape, step, formats);
  const double bandwidth = reachable_bandwidth(input.machine, total_work(layers).bytes());
  StepTime time;
  for (const LayerWork& layer : layers) {
    const uint32_t bits = layer.name == kAttentionWork ? attention_bits(input) : matrix_bits(input);
    time.kinds.push_back({layer.name, layer.work, layer.work.bytes() / bandwidth,
                          layer.work.flops / reachable_flops(input.machine, bits)});
  }
  return time;
}

StepShape decode_step(const PlanInput& input, uint64_t batch, uint64_t rows) {
  return {.sequences = batch, .rows = rows, .context = input.context - 1, .logit_rows = rows};
}

StepShape prefill_step(const PlanInput& input) {
  return {.sequences = 1,
          .rows = input.prompt - input.shared_prefix,
          .context = input.shared_prefix,
          .logit_rows = 1};
}

double time_to_first_token(const PlanInput& input) {
  if (input.predictor) return input.predictor->predict(prefill_step(input)).seconds;
  return step_time(input, prefill_step(input)).seconds();
}

double time_per_token(const PlanInput& input, uint64_t batch, uint64_t rows) {
  const StepShape step = decode_step(input, batch, rows);
  return input.predictor ? input.predictor->predict(step).seconds : step_time(input, step).seconds();
}

double memory_needed(const PlanInput& input, uint64_t batch) {
  const double own = kv_bytes_per_sequence(input.shape, input.kv, input.context) - shared_bytes(input);
  return parameters_in_memory(input) + shared_bytes(input) + static_cast<double>(batch) * own;
}

std::optional<uint64_t> conversations_in_memory(const PlanInput& input) {
  if (input.machine.memory_bytes == 0) return std::nullopt;
  const double own = kv_bytes_per_sequence(input.shape, input.kv, input.context) - shared_bytes(input);
  const double room = static_cast<double>(input.machine.memory_bytes) - memory_needed(input, 0);
  return room > 0 && own > 0 ? static_cast<uint64_t>(room / own) : 0;
}

uint64_t largest_batch_within(const PlanInput& input, double tpot_seconds, uint64_t most) {
  return last_that_holds(most, [&](uint64_t batch) {
    return fits(input, batch) && time_per_token(input, batch) <= tpot_seconds;
  });
}

uint64_t longest_prompt_within(const PlanInput& input, double ttft_seconds) {
  PlanInput other = input;
  other.shared_prefix = 0;
  return last_that_holds(input.context, [&](uint64_t prompt) {
    other.prompt = prompt;
    return time_to_first_token(other) <= ttft_seconds;
  });
}

std::string_view plan_bound_name(PlanBound bound) {
  switch (bound) {
    case PlanBound::kBandwidth:
      return "memory bandwidth";
    case PlanBound::kCompute:
      return "compute";
    case PlanBound::kMemorySize:
      return "memory size";
  }
  return "";
}

PlanPoint plan_point(const PlanInput& input, uint64_t batch) {
  const StepTime time = step_time(input, decode_step(input, batch));
  PlanPoint point{.batch = batch,
                  .seconds = time.seconds(),
                  .floor_seconds = time.seconds(),
                  .memory_bytes = memory_needed(input, batch)};
  if (input.predictor) {
    const StepPrediction p = input.predictor->predict(decode_step(input, batch));
    point.seconds = p.seconds;
    point.mostly = p.bound();
  }
  point.throughput = static_cast<double>(batch) / point.seconds;
  point.bound = !fits(input, batch)   ? PlanBound::kMemorySize
                : time.memory_bound() ? PlanBound::kBandwidth
                                      : PlanBound::kCompute;
  return point;
}

std::vector<uint64_t> plan_batches(const PlanInput& input, const PlanGoals& goals) {
  std::vector<uint64_t> batches;
  for (uint64_t batch = 1; batch <= kLongestTable; batch *= 2) {
    batches.push_back(batch);
    if (!fits(input, batch)) break;
  }
  const std::optional<uint64_t> most = conversations_in_memory(input);
  if (most && *most > 0 && *most < batches.back()) batches.push_back(*most);
  if (goals.users) batches.push_back(*goals.users);
  if (goals.tpot_seconds) {
    const uint64_t limit = largest_batch_within(input, *goals.tpot_seconds, kMostSequences);
    if (limit > 0) batches.push_back(limit);
  }
  std::sort(batches.begin(), batches.end());
  batches.erase(std::unique(batches.begin(), batches.end()), batches.end());
  return batches;
}

std::vector<uint64_t> plan_contexts(const PlanInput& input) {
  std::vector<uint64_t> contexts;
  for (int shift = 3; shift >= 0; --shift)
    if (const uint64_t context = input.context >> shift; context > 0) contexts.push_back(context);
  return contexts;
}

PlanInput filled_to(const PlanInput& input, uint64_t context) {
  PlanInput other = input;
  other.context = other.prompt = context;
  other.shared_prefix = 0;
  return other;
}

MachineSpec with_threads(const MachineSpec& machine, uint32_t threads) {
  if (!machine.profile) return machine;
  HardwareProfile profile = *machine.profile;
  threads = std::clamp(threads, 1u, profile.threads);
  const HardwareProfile& all = *machine.profile;
  profile.int8_macs.all_threads = all.int8_rate(threads);
  profile.f32_macs.all_threads = all.f32_rate(threads);
  for (size_t i = 0; i < profile.reads.size(); ++i)
    profile.reads[i].rate.all_threads = all.read_rate(all.reads[i].bytes, threads);
  profile.threads = threads;
  MachineSpec fewer = machine_from_profile(profile, machine.memory_bytes, machine.source);
  fewer.name = machine.name;
  return fewer;
}

Status check_plan(const PlanInput& input) {
  const uint64_t most = input.shape.max_context;
  if (input.context == 0) return invalid_argument("the context is 0: it must be 1 or more");
  if (most > 0 && input.context > most)
    return invalid_argument(fmt::format("the context is {} and {} was made for at most {}", input.context,
                                        input.shape.name, most));
  if (input.prompt == 0) return invalid_argument("the prompt is 0: it must be 1 or more");
  if (input.prompt > input.context)
    return invalid_argument(
        fmt::format("the prompt is {} and the context only {}", input.prompt, input.context));
  if (input.shared_prefix >= input.prompt)
    return invalid_argument(fmt::format("the shared prefix is {} of a prompt of {}: it must leave a token",
                                        input.shared_prefix, input.prompt));
  return {};
}

}  // namespace kvasir
