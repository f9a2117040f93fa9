#include "policy_sim.h"

#include <algorithm>
#include <cmath>
#include <deque>
#include <memory>
#include <numbers>
#include <random>

#include "base/check.h"
#include "engine/scheduler.h"

namespace kvasir::sim {
namespace {

// Draws that are the same in every standard library.
class Draws {
 public:
  explicit Draws(uint64_t seed) : random_(seed) {}
  double uniform() { return (static_cast<double>(random_() >> 11) + 0.5) * 0x1p-53; }
  double exponential(double mean) { return -mean * std::log(uniform()); }
  double normal() { return std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform()); }
  uint32_t log_normal(double median, double spread, uint32_t most) {
    const double value = median * std::exp(spread * normal());
    return std::clamp(static_cast<uint32_t>(std::lround(std::min(value, 1e9))), 1u, most);
  }

 private:
  std::mt19937_64 random_;
};

constexpr TokenId kVocab = 1 << 20;

// Tokens that no two texts have in common, so that only system prompts are shared.
TokenId text_token(uint64_t text, uint32_t position) {
  return static_cast<TokenId>((text * 7919 + position * 104729) % kVocab);
}

// One policy at work on one load.
class Server {
 public:
  Server(const Policy& policy, const std::vector<LoadRequest>& load, const PolicyMachine& machine);
  PolicyResult run();

 private:
  struct Job final : Sequence {
    Job(BlockTable blocks, std::vector<TokenId> known, uint32_t prompt)
        : Sequence(std::move(blocks), std::move(known), prompt) {}
    const LoadRequest* request = nullptr;
    double last_token = 0;
  };

  void let_in();
  void step();
  double add_padding(const SchedulerOutput& plan, StepLoad* load) const;
  void count_memory(double seconds);
  void accept(Job& job);

  const Policy& policy_;
  const std::vector<LoadRequest>& load_;
  const PolicyMachine& machine_;
  uint32_t seats_;  // sequences at once
  BlockPool pool_;
  PrefixCache cache_;
  Scheduler scheduler_;
  std::deque<Job> jobs_;  // that have been let in
  size_t next_ = 0;       // request of the load
  double now_ = 0;
  double busy_ = 0;     // seconds within steps
  uint32_t batch_ = 0;  // of static batching: sequences that the last one began with
  PolicyResult result_;
  std::vector<double> first_, gaps_;
};

uint32_t blocks_of(const PolicyMachine& machine) {
  return static_cast<uint32_t>(machine.kv_bytes / machine.layout->block_bytes());
}

uint32_t seats_of(const Policy& policy, const PolicyMachine& machine) {
  if (!policy.contiguous) return machine.max_num_seqs;
  return std::min(machine.max_num_seqs, blocks_of(machine) / machine.layout->blocks_for(machine.context));
}

Scheduler::Options scheduler_options(const Policy& policy, const PolicyMachine& machine) {
  const uint32_t seats = seats_of(policy, machine);
  const uint32_t rows = policy.whole_prompts ? machine.context + seats : machine.max_num_batched_tokens;
  return {.max_num_seqs = seats,
          .max_num_batched_tokens = rows,
          .max_logit_rows = std::max(seats, machine.max_num_batched_tokens),
          .max_model_len = machine.context,
          .costs = policy.paced ? machine.costs : nullptr};
}

Server::Server(const Policy& policy, const std::vector<LoadRequest>& load, const PolicyMachine& machine)
    : policy_(policy),
      load_(load),
      machine_(machine),
      seats_(seats_of(policy, machine)),
      pool_(blocks_of(machine)),
      cache_(*machine.layout, pool_, {.enabled = policy.sharing}),
      scheduler_(scheduler_options(policy, machine), *machine.layout, pool_, cache_) {
  CHECK(seats_ > 0);
}

// Requests that have arrived; in batches, only once nothing runs, and as many as have a seat.
void Server::let_in() {
  if (policy_.in_batches && scheduler_.has_work()) return;
  if (!scheduler_.has_work() && next_ < load_.size()) now_ = std::max(now_, load_[next_].time);
  uint32_t seats = policy_.in_batches ? seats_ : UINT32_MAX;
  batch_ = 0;
  for (; next_ < load_.size() && load_[next_].time <= now_ && seats > 0; ++next_, --seats) {
    const LoadRequest& r = load_[next_];
    const uint32_t prompt = static_cast<uint32_t>(r.prompt.size());
    CHECK(prompt + r.output <= machine_.context);
    std::vector<TokenId> tokens;
    tokens.reserve(prompt + r.output);
    tokens = r.prompt;
    Job& job = jobs_.emplace_back(BlockTable(*machine_.layout, pool_, cache_, "", prompt + r.output),
                                  std::move(tokens), prompt);
    job.age = {next_, 0};
    job.request = &r;
    scheduler_.add(job);
    ++batch_;
  }
}

// Slots that are allocated and hold no token. Blocks that sequences share count once: what their owners leave
// empty is never shared. A static batch keeps its reservations until it ends.
void Server::count_memory(double seconds) {
  const double size = machine_.layout->block_size();
  const size_t running = scheduler_.running().size();
  double held = 0, used = 0;
  for (const Sequence* s : scheduler_.running()) {
    held += s->table.entries() * size;
    used += s->computed + s->scheduled;
  }
  double allocated = pool_.owned() / machine_.layout->units() * size;
  double empty = held - used;
  if (policy_.contiguous) {
    allocated = static_cast<double>(policy_.in_batches ? batch_ : running) * machine_.context;
    empty = allocated - used;
  }
  busy_ += seconds;
  result_.wasted += seconds * empty / allocated;
  result_.running_mean += seconds * static_cast<double>(running);
  result_.running_most = std::max(result_.running_most, static_cast<uint32_t>(running));
}

// Answers of the batch that have ended go on, in *load; and the seconds that prompts take to be as long as
// the longest.
double Server::add_padding(const SchedulerOutput& plan, StepLoad* load) const {
  uint32_t longest = 0;
  const auto batch = jobs_.end() - static_cast<ptrdiff_t>(batch_);
  for (auto job = batch; job != jobs_.end(); ++job) longest = std::max(longest, job->prompt_length);
  for (auto job = batch; job != jobs_.end(); ++job) {
    if (job->state == Sequence::State::kFinished)
      machine_.costs->add(*load, {.rows = 1, .context = longest}, 1);
  }
  double seconds = 0;
  for (const SchedulerOutput::Item& item : plan.items) {
    const Sequence& s = *item.sequence;
    if (s.computed > 0 || s.prompt_length == longest) continue;
    StepLoad padding;
    machine_.costs->add(padding, {.rows = longest - s.prompt_length, .context = s.prompt_length}, 0);
    seconds += machine_.costs->seconds(padding);
  }
  return seconds;
}

void Server::step() {
  const SchedulerOutput& plan = scheduler_.plan();
  StepLoad load;
  for (const SchedulerOutput::Item& item : plan.items)
    machine_.costs->add(load, {.rows = item.rows, .context = item.sequence->computed}, item.logit_rows);
  double seconds = policy_.padded ? add_padding(plan, &load) : 0;
  seconds += machine_.costs->seconds(load);
  count_memory(seconds);
  now_ += seconds;
  ++result_.steps;
  result_.computed_tokens += plan.rows;
  for (const SchedulerOutput::Item& item : plan.items) {
    Job& job = static_cast<Job&>(*item.sequence);
    job.computed += item.rows;
    job.scheduled = 0;
    job.table.commit(job.tokens, job.computed);
    if (job.pending() == 0) accept(job);
  }
}

void Server::accept(Job& job) {
  const uint32_t said = job.known() - job.prompt_length;
  (said == 0 ? first_ : gaps_).push_back(now_ - (said == 0 ? job.request->time : job.last_token));
  job.last_token = now_;
  ++result_.output_tokens;
  job.tokens.push_back(text_token(1000000 + job.age.first, said));
  if (said + 1 == job.request->output) scheduler_.remove(job);
}

PolicyResult Server::run() {
  while (next_ < load_.size() || scheduler_.has_work()) {
    let_in();
    step();
  }
  result_.seconds = now_ - load_.front().time;
  for (const LoadRequest& r : load_) result_.prompt_tokens += r.prompt.size();
  result_.preemptions = scheduler_.counters().preemptions;
  result_.wasted /= busy_;
  result_.running_mean /= busy_;
  result_.ttft = quantiles(first_);
  result_.itl = quantiles(gaps_);
  return result_;
}

}  // namespace

std::vector<LoadRequest> make_load(const LoadShape& shape) {
  Draws draws(shape.seed);
  std::vector<LoadRequest> load(shape.requests);
  double time = 0;
  for (uint32_t i = 0; i < shape.requests; ++i) {
    LoadRequest& r = load[i];
    if (shape.rate > 0) time += draws.exponential(1 / shape.rate);
    r.time = time;
    const uint64_t system =
        shape.system_prompts == 0 ? 0 : static_cast<uint64_t>(draws.uniform() * shape.system_prompts);
    const uint32_t own = draws.log_normal(shape.prompt_median, shape.prompt_spread, shape.longest);
    const uint32_t shared = shape.system_prompts == 0 ? 0 : shape.system_tokens;
    for (uint32_t p = 0; p < shared; ++p) r.prompt.push_back(text_token(2000000 + system, p));
    for (uint32_t p = 0; p < own; ++p) r.prompt.push_back(text_token(3000000 + i, p));
    r.output = draws.log_normal(shape.output_median, shape.output_spread, shape.longest);
  }
  return load;
}

const std::vector<Policy>& policies() {
  static const std::vector<Policy> kPolicies = {
      {.name = "padded",
       .idea = "static batching as batched tensors do it: each sequence takes the rows of the longest",
       .in_batches = true,
       .padded = true,
       .contiguous = true,
       .whole_prompts = true},
      {.name = "static",
       .idea = "a batch runs until its last answer ends, without padding; KV reserved for the whole context",
       .in_batches = true,
       .contiguous = true,
       .whole_prompts = true},
      {.name = "continuous",
       .idea = "answers come and go at every step (Orca, OSDI 2022); prompts whole",
       .contiguous = true,
       .whole_prompts = true},
      {.name = "paged", .idea = "KV in blocks as it grows (vLLM, SOSP 2023)", .whole_prompts = true},
      {.name = "chunked", .idea = "prompts in chunks within a fixed budget (Sarathi-Serve, OSDI 2024)"},
      {.name = "paced", .idea = "chunks sized by the predicted time of the step", .paced = true},
      {.name = "kvasir",
       .idea = "and prefixes shared, also while they are computed",
       .paced = true,
       .sharing = true},
  };
  return kPolicies;
}

Quantiles quantiles(std::vector<double> values) {
  if (values.empty()) return {};
  std::sort(values.begin(), values.end());
  const auto at = [&](double q) {
    return values[static_cast<size_t>(q * static_cast<double>(values.size() - 1) + 0.5)];
  };
  double sum = 0;
  for (const double v : values) sum += v;
  return {sum / static_cast<double>(values.size()), at(0.5), at(0.99), values.back()};
}

PolicyResult simulate(const Policy& policy, const std::vector<LoadRequest>& load,
                      const PolicyMachine& machine) {
  return Server(policy, load, machine).run();
}

}  // namespace kvasir::sim
