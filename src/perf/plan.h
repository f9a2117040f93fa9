#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "perf/machine_spec.h"
#include "perf/model_shape.h"
#include "perf/plan_predictor.h"
#include "perf/work_formulas.h"

namespace kvasir {

// A model on a machine, as one way of serving it: what `kvasir plan` computes with. Two kinds of times come
// from it: floors, the least that the machine allows, of which kernels reach a part; and, where there is a
// predictor, what the engine's own model of its steps says of these kernels.
struct PlanInput {
  ModelShape shape;
  MachineSpec machine;                       // memory_bytes 0: not known, nothing is limited by it
  std::optional<WeightFormat> weights = {};  // absent: as the shape's source stores them
  KvFormat kv = {};
  uint64_t context = 4096;     // positions that a conversation keeps
  uint64_t prompt = 4096;      // tokens before the first answer, at most `context`
  uint64_t shared_prefix = 0;  // first tokens of every prompt that are the same: computed and kept once
  // Of this model as stored, this machine and this KV cache; null: there are only floors.
  std::shared_ptr<const PlanPredictor> predictor = {};

  const WeightFormat& weight_format() const { return weights ? *weights : shape.weights; }
};

// The plan with one thing changed; without the predictor where it cannot say anything of that.
PlanInput with_weights(const PlanInput& input, const WeightFormat& weights);
PlanInput with_kv(const PlanInput& input, const KvFormat& kv);
PlanInput with_machine(const PlanInput& input, const MachineSpec& machine);
PlanInput floor_of(const PlanInput& input);  // without a predictor

// What the user asked for; absent: nothing.
struct PlanGoals {
  std::optional<uint64_t> users = {};       // conversations at once
  std::optional<double> ttft_seconds = {};  // time to first token, of a prompt on an idle machine
  std::optional<double> tpot_seconds = {};  // time per output token, of every conversation

  bool any() const { return users || ttft_seconds || tpot_seconds; }
  // Conversations whose tokens are timed: the users, else one.
  uint64_t batch() const { return users.value_or(1); }
};

// Width of the numbers that a step multiplies. A CPU's kernels multiply quantised weights as int8 and
// attention as f32 (docs/numerics.md); wider weights, and everything on a GPU, as f16 where it has that.
uint32_t matrix_bits(const PlanInput& input);
uint32_t attention_bits(const PlanInput& input);
// FLOPs per second that are reachable with numbers of so many bits: 2 * macs * reachable_compute.
double reachable_flops(const MachineSpec& machine, uint32_t bits);
// Bytes per second that are reachable when a step reads so many: read_rate * reachable_bandwidth.
double reachable_bandwidth(const MachineSpec& machine, double bytes);

// One kind of layer in a step: its work at the reachable rates. Reading and computing overlap, so the longer
// counts.
struct KindTime {
  std::string name;  // as step_work() names it
  Work work;
  double read_seconds = 0;
  double compute_seconds = 0;

  double seconds() const { return read_seconds > compute_seconds ? read_seconds : compute_seconds; }
};

// The sum over the kinds of max(compute, read): Book, "Inference", the general step time, with attention
// allowed to be compute-bound as well. Activations are left out: they stay in caches.
struct StepTime {
  std::vector<KindTime> kinds;

  double seconds() const;
  double read_seconds() const;     // of all kinds
  double compute_seconds() const;  // of all kinds
  bool memory_bound() const { return read_seconds() >= compute_seconds(); }
};
StepTime step_time(const PlanInput& input, const StepShape& step);

// The step that decodes one token for each of so many conversations of `context` positions, with `rows` rows
// each (more than one: a verification of drafts); and the one that computes a prompt behind its shared
// prefix.
StepShape decode_step(const PlanInput& input, uint64_t batch, uint64_t rows = 1);
StepShape prefill_step(const PlanInput& input);

// Seconds of prefill_step(): the first token on an idle machine, queueing and tokenising left out; predicted
// where there is a predictor, else the floor.
double time_to_first_token(const PlanInput& input);
// Seconds of decode_step(), likewise: the time between a conversation's tokens.
double time_per_token(const PlanInput& input, uint64_t batch, uint64_t rows = 1);

// Weights + shared prefix once + every conversation's own KV cache, in bytes.
double memory_needed(const PlanInput& input, uint64_t batch);
// The most conversations that fit; nothing where the machine's memory is not known.
std::optional<uint64_t> conversations_in_memory(const PlanInput& input);

// The largest batch whose tokens come within `tpot_seconds` and that fits in memory, at most `most`; 0: not
// even one.
uint64_t largest_batch_within(const PlanInput& input, double tpot_seconds, uint64_t most);
// The longest prompt whose first token comes within `ttft_seconds`, at most `input.context`; 0: none.
uint64_t longest_prompt_within(const PlanInput& input, double ttft_seconds);

// What limits a batch.
enum class PlanBound { kBandwidth, kCompute, kMemorySize };
std::string_view plan_bound_name(PlanBound bound);  // "memory bandwidth", "compute", "memory size"

struct PlanPoint {
  uint64_t batch = 1;
  double seconds = 0;        // time per output token, predicted where there is a predictor
  double floor_seconds = 0;  // the least that the machine allows
  double throughput = 0;     // tokens per second of all together, by `seconds`
  double memory_bytes = 0;
  PlanBound bound = PlanBound::kBandwidth;  // of the floor; kMemorySize: it does not fit
  std::optional<StepPart> mostly = {};      // the largest part of a prediction
};
PlanPoint plan_point(const PlanInput& input, uint64_t batch);

// The batches of a report, ascending: powers of two up to the first that does not fit, at most 256, and the
// users, the most that fit and the most within the goal's time per token where they are asked for or known.
std::vector<uint64_t> plan_batches(const PlanInput& input, const PlanGoals& goals);
// The plan's context, its half and so on, ascending: four where it is long enough.
std::vector<uint64_t> plan_contexts(const PlanInput& input);
// The plan with so long a context, and a prompt that fills it; nothing is shared.
PlanInput filled_to(const PlanInput& input, uint64_t context);
inline constexpr uint64_t kMostSequences = 4096;  // that kvasir serve takes (--max-num-seqs)

// The machine with so many of the threads that its profile was measured with; unchanged without a profile.
MachineSpec with_threads(const MachineSpec& machine, uint32_t threads);

// kInvalidArgument, naming both numbers, for a context beyond the model's, a prompt beyond the context, a
// shared prefix that leaves no token of the prompt, or a number of 0.
Status check_plan(const PlanInput& input);

}  // namespace kvasir
