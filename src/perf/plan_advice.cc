#include "perf/plan_advice.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "perf/plan_derivation.h"

namespace kvasir {
namespace {

constexpr double kWorthSaying = 1.005;

double objective_value(const PlanOutcome& outcome, PlanObjective objective) {
  switch (objective) {
    case PlanObjective::kTtft:
      return outcome.ttft;
    case PlanObjective::kTpot:
      return outcome.tpot;
    case PlanObjective::kMemory:
      return outcome.memory_bytes;
  }
  return 0;
}

// How much better all that a user may care about becomes, as a product of ratios.
double overall_gain(const PlanOutcome& before, const PlanOutcome& after) {
  return before.ttft / after.ttft * (before.tpot / after.tpot) * (before.memory_bytes / after.memory_bytes);
}

bool betters_something(const PlanOutcome& before, const PlanOutcome& after) {
  return before.ttft / after.ttft > kWorthSaying || before.tpot / after.tpot > kWorthSaying ||
         before.memory_bytes / after.memory_bytes > kWorthSaying ||
         after.conversations.value_or(0) > before.conversations.value_or(0);
}

struct Adviser {
  const PlanInput& input;
  const PlanGoals& goals;
  const AdviceOptions& options;
  const PlanObjective objective = plan_objective(input, goals);
  const PlanOutcome before = plan_outcome(input, goals);
  const PlanOutcome before_floor = plan_outcome(floor_of(input), goals);
  std::vector<PlanAdvice> advice = {};

  // Like with like: predictions before and after, or floors.
  const PlanOutcome& before_as(const PlanOutcome& after) const {
    return after.predicted ? before : before_floor;
  }
  double gain(const PlanOutcome& after) const {
    return objective_value(before_as(after), objective) / objective_value(after, objective);
  }
  void add(std::string id, std::string change, std::string how, const PlanOutcome& after) {
    if (betters_something(before_as(after), after))
      advice.push_back({std::move(id), std::move(change), std::move(how), gain(after), after});
  }

  void weights();
  void kv();
  void context();
  void batch_limit();
  void speculation();
  void prefix();
  void threads();
  void machines();
  std::optional<PlanAdvice> on_machine(const MachineSpec& machine) const;
};

void Adviser::weights() {
  for (const char* name : {"Q8_0", "Q4_K_M"}) {
    const Result<WeightFormat> format = parse_weight_format(name);
    CHECK(format.ok());
    if (format->bits >= 0.95 * input.weight_format().bits) continue;
    add(fmt::format("weights_{}", name),
        fmt::format("weights as {} ({:.3g} bits each) instead of {} ({:.3g})", name, format->bits,
                    input.weight_format().name, input.weight_format().bits),
        fmt::format("serve a {} GGUF of the model", name), plan_outcome(with_weights(input, *format), goals));
  }
}

void Adviser::kv() {
  if (input.kv.bits <= 8.5) return;
  const Result<KvFormat> format = parse_kv_format("int8");
  CHECK(format.ok());
  add("kv_int8", fmt::format("KV cache as int8 instead of {}", input.kv.name), "--kv-cache-dtype int8",
      plan_outcome(with_kv(input, *format), goals));
}

// The longest context that meets the goals, else half.
void Adviser::context() {
  constexpr uint64_t kLeast = 256;
  const auto with = [&](uint64_t context) {
    PlanInput other = input;
    other.context = context;
    other.prompt = std::min(input.prompt, context);
    other.shared_prefix = std::min(input.shared_prefix, other.prompt - 1);
    return other;
  };
  uint64_t chosen = input.context / 2;
  if (!before.all_met()) {
    uint64_t meets = 0, misses = input.context;
    while (misses - meets > 1) {
      const uint64_t middle = meets + (misses - meets) / 2;
      (plan_outcome(with(middle), goals).all_met() ? meets : misses) = middle;
    }
    if (meets >= kLeast) chosen = meets;
  }
  if (chosen < kLeast) return;
  const PlanInput other = with(chosen);
  add("context",
      fmt::format("a context of {} instead of {}{}", chosen, input.context,
                  other.prompt < input.prompt ? ", and a prompt no longer" : ""),
      fmt::format("--max-model-len {}", chosen), plan_outcome(other, goals));
}

void Adviser::batch_limit() {
  if (!goals.tpot_seconds || before.tpot_met) return;
  const uint64_t limit = largest_batch_within(input, *goals.tpot_seconds, goals.batch());
  if (limit == 0) return;
  PlanGoals fewer = goals;
  fewer.users = limit;
  PlanOutcome after = plan_outcome(input, fewer);
  after.users_met = limit >= goals.batch();
  add("batch_limit",
      fmt::format("{} answers at once instead of {}; the others wait their turn", limit, goals.batch()),
      fmt::format("--max-num-seqs {}", limit), after);
}

void Adviser::speculation() {
  const PlanSpeculation s = plan_speculation(input, before.batch, options.acceptance);
  const PlanSpeculation::Row* row = s.best();
  if (row == nullptr) return;
  PlanOutcome after = before;
  after.tpot /= s.speedup(*row);
  after.throughput *= s.speedup(*row);
  after.tpot_met = !goals.tpot_seconds || after.tpot <= *goals.tpot_seconds;
  add("speculation",
      fmt::format("speculation by prompt lookup with {} draft{} a step, if {:.3g} of them are right",
                  row->drafts, row->drafts == 1 ? "" : "s", options.acceptance),
      fmt::format(
          "--speculate ngram --speculate-tokens {}, or the default --speculate auto, which chooses how "
          "many step by step and none where that does not pay",
          row->drafts),
      after);
}

void Adviser::prefix() {
  const uint64_t shared = input.prompt / 2;
  if (shared <= input.shared_prefix) return;
  PlanInput other = input;
  other.shared_prefix = shared;
  add("shared_prefix",
      fmt::format("prompts that begin with the same {} of their {} tokens", shared, input.prompt),
      "--enable-prefix-caching, which is on: put what is common first", plan_outcome(other, goals));
}

void Adviser::threads() {
  if (!options.whole_machine || !options.whole_machine->profile || !input.machine.profile) return;
  const uint32_t all = options.whole_machine->profile->threads, now = input.machine.profile->threads;
  if (all <= now) return;
  PlanInput other = with_machine(input, *options.whole_machine);
  if (input.predictor) other.predictor = input.predictor->with_threads(all);
  add("threads", fmt::format("{} threads instead of {}", all, now), fmt::format("--threads {}", all),
      plan_outcome(other, goals));
}

// Of the published processors, and then of all published machines, the one of least bandwidth that meets
// every goal, or the one that gains most where none does or nothing was asked.
void Adviser::machines() {
  std::optional<PlanAdvice> chosen[2];
  double bandwidth[2] = {0, 0};
  for (const std::string& name : known_machine_names()) {
    const Result<MachineSpec> machine = machine_by_name(name);
    CHECK(machine.ok());
    const std::optional<PlanAdvice> a = on_machine(*machine);
    if (!a) continue;
    for (const size_t list : {size_t{0}, size_t{1}}) {
      if (list == 0 && machine->kind != MachineSpec::Kind::kCpu) continue;
      const bool aimed = goals.any() || !before.all_met();
      const bool meets = aimed && a->after.all_met();
      const bool had = chosen[list] && aimed && chosen[list]->after.all_met();
      const bool better = meets != had ? meets
                          : meets      ? machine->bandwidth < bandwidth[list]
                                       : !chosen[list] || a->gain > chosen[list]->gain;
      if (!better) continue;
      chosen[list] = a;
      bandwidth[list] = machine->bandwidth;
    }
  }
  if (chosen[0]) advice.push_back(*chosen[0]);
  if (chosen[1] && (!chosen[0] || chosen[1]->id != chosen[0]->id)) advice.push_back(*chosen[1]);
}

// Nothing where it does not gain, or the batch does not fit there.
std::optional<PlanAdvice> Adviser::on_machine(const MachineSpec& machine) const {
  if (machine.name == input.machine.name) return std::nullopt;
  const PlanOutcome after = plan_outcome(with_machine(input, machine), goals);
  if (!after.users_met) return std::nullopt;
  // Memory needed is the same on every machine: what counts is that it is there.
  const double better = objective == PlanObjective::kMemory
                            ? static_cast<double>(machine.memory_bytes) /
                                  std::max<double>(static_cast<double>(input.machine.memory_bytes), 1)
                            : gain(after);
  if (better < kWorthSaying) return std::nullopt;
  return PlanAdvice{fmt::format("machine_{}", id_part(machine.name)),
                    fmt::format("{} instead of {}", machine.name, input.machine.name),
                    fmt::format("--machine \"{}\" plans for it", machine.name), better, after};
}

}  // namespace

PlanOutcome plan_outcome(const PlanInput& input, const PlanGoals& goals) {
  const PlanPoint point = plan_point(input, goals.batch());
  PlanOutcome o{.predicted = input.predictor != nullptr,
                .batch = point.batch,
                .ttft = time_to_first_token(input),
                .tpot = point.seconds,
                .throughput = point.throughput,
                .memory_bytes = point.memory_bytes,
                .conversations = conversations_in_memory(input)};
  o.ttft_met = !goals.ttft_seconds || o.ttft <= *goals.ttft_seconds;
  o.tpot_met = !goals.tpot_seconds || o.tpot <= *goals.tpot_seconds;
  o.users_met = !o.conversations || *o.conversations >= goals.batch();
  return o;
}

PlanObjective plan_objective(const PlanInput& input, const PlanGoals& goals) {
  const PlanOutcome outcome = plan_outcome(input, goals);
  PlanObjective objective = PlanObjective::kTpot;
  double most = 0;
  const auto consider = [&](PlanObjective candidate, double missed_by) {
    if (missed_by <= most) return;
    most = missed_by;
    objective = candidate;
  };
  if (goals.ttft_seconds) consider(PlanObjective::kTtft, outcome.ttft / *goals.ttft_seconds);
  if (goals.tpot_seconds) consider(PlanObjective::kTpot, outcome.tpot / *goals.tpot_seconds);
  // Users who fit have what they asked for; then their tokens' time is what is left to better.
  if (!outcome.users_met)
    consider(PlanObjective::kMemory, outcome.memory_bytes / static_cast<double>(input.machine.memory_bytes));
  return objective;
}

std::string_view plan_objective_name(PlanObjective objective) {
  switch (objective) {
    case PlanObjective::kTtft:
      return "time to first token";
    case PlanObjective::kTpot:
      return "time per output token";
    case PlanObjective::kMemory:
      return "memory";
  }
  return "";
}

std::vector<PlanAdvice> plan_advice(const PlanInput& input, const PlanGoals& goals,
                                    const AdviceOptions& options) {
  Adviser adviser{.input = input, .goals = goals, .options = options};
  adviser.weights();
  adviser.kv();
  adviser.context();
  adviser.batch_limit();
  adviser.speculation();
  adviser.prefix();
  adviser.threads();
  adviser.machines();
  std::stable_sort(adviser.advice.begin(), adviser.advice.end(),
                   [&](const PlanAdvice& a, const PlanAdvice& b) {
                     if (a.gain != b.gain) return a.gain > b.gain;
                     return overall_gain(adviser.before_as(a.after), a.after) >
                            overall_gain(adviser.before_as(b.after), b.after);
                   });
  return std::move(adviser.advice);
}

void derive_advice(Derivation& derivation, PlanObjective objective, const PlanOutcome& before,
                   const std::vector<PlanAdvice>& advice) {
  constexpr const char* kRerun = "the plan, run again with that one change";
  const std::string now = objective == PlanObjective::kTtft   ? "ttft"
                          : objective == PlanObjective::kTpot ? batch_id(before.batch, "tpot")
                                                              : batch_id(before.batch, "memory");
  for (const PlanAdvice& a : advice) {
    const std::string prefix = fmt::format("advice_{}_", a.id);
    const bool timed = a.after.predicted && objective != PlanObjective::kMemory;
    const auto add = [&](const char* id, const char* title, double value, const char* unit) {
      derivation.add({.id = prefix + id,
                      .title = fmt::format("{}, with {}", title, a.change),
                      .value = value,
                      .unit = unit,
                      .formula = "v",
                      .inputs = {given("v", fmt::format("{} of that plan", title), value, unit)},
                      .source = kRerun});
    };
    add("ttft", "time to first token", a.after.ttft, "s");
    add("tpot", "time per output token", a.after.tpot, "s");
    add("memory", "memory needed", a.after.memory_bytes, "bytes");
    if (a.after.conversations)
      add("conversations", "conversations that fit", static_cast<double>(*a.after.conversations), "");
    Quantity q{.id = prefix + "gain",
               .title = fmt::format("gain in {} by {}", plan_objective_name(objective), a.change),
               .value = a.gain,
               .formula = "b / a",
               .inputs = {of("b", timed ? predicted_id(now) : now),
                          of("a", prefix + (objective == PlanObjective::kTtft   ? "ttft"
                                            : objective == PlanObjective::kTpot ? "tpot"
                                                                                : "memory"))},
               .source = kRerun};
    // On another machine the same memory is needed, and more may be there.
    if (a.id.starts_with("machine_") && objective == PlanObjective::kMemory)
      q.inputs = {given("b", "its memory over this machine's", a.gain), given("a", "one", 1)};
    derivation.add(std::move(q));
  }
}

}  // namespace kvasir
