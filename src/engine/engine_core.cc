#include "engine/engine_core.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "decoding/logprobs.h"

namespace kvasir {
namespace {

Scheduler::Options scheduler_options(const EngineConfig& config, const StepCosts* costs) {
  const CausalLm::Limits limits = model_limits(config);
  return {config.max_num_seqs,  limits.max_rows, limits.max_logit_rows,
          config.max_model_len, costs,           config.max_itl_seconds};
}

Speculator::Options speculator_options(const EngineConfig& config, const StepCosts* costs,
                                       uint32_t hidden_dim) {
  return {.max_num_seqs = config.max_num_seqs,
          .max_model_len = config.max_model_len,
          .costs = costs,
          .max_rows = model_limits(config).max_rows,
          .hidden_dim = hidden_dim,
          .most = config.speculation.most,
          .always = config.speculation.always,
          .never = config.speculation.never};
}

std::unique_ptr<StepForecast> make_forecast(std::unique_ptr<PerfModel> perf, const KvLayout& layout,
                                            uint32_t max_num_seqs) {
  return perf == nullptr ? nullptr : std::make_unique<StepForecast>(std::move(perf), layout, max_num_seqs);
}

}  // namespace

EngineCore::EngineCore(const EngineConfig& config, const KvLayout& layout, uint32_t blocks, CausalLm& model,
                       const Tokenizer& tokenizer, const KernelTable& kernels, ThreadPool& pool,
                       uint64_t hash_seed, std::unique_ptr<PerfModel> perf,
                       std::vector<std::unique_ptr<Drafter>> drafters)
    : config_(config),
      layout_(layout),
      tokenizer_(tokenizer),
      kernels_(kernels),
      vocab_(model.config().vocab_size),
      pool_(blocks),
      cache_(layout_, pool_, {config.enable_prefix_caching, hash_seed, 64}),
      forecast_(make_forecast(std::move(perf), layout_, config.max_num_seqs)),
      scheduler_(scheduler_options(config, forecast_.get()), layout_, pool_, cache_),
      runner_(model, layout_, blocks, model_limits(config), config.max_num_seqs),
      speculator_(speculator_options(config, forecast_.get(), model.config().hidden_dim), std::move(drafters),
                  runner_.store()),
      recorder_(config.max_model_len),
      sampler_(pool, tokenizer, config.max_num_seqs, model_limits(config).max_logit_rows,
               config.max_model_len, config.speculation.accept == SpeculationConfig::Accept::kRejection),
      backlog_(forecast_.get(), model_limits(config).max_rows, config.max_num_seqs) {
  row_copy_.resize(vocab_);
  wanted_.reserve(model_limits(config).max_logit_rows);
  left_queue_.reserve(config.max_num_seqs);
}

EngineCore::~EngineCore() {
  cancel_all();
}

std::unique_ptr<Choice> EngineCore::make_choice(ActiveRequest& request, uint32_t index, BlockTable table,
                                                std::vector<TokenId> tokens, uint32_t prompt_length) {
  const Request& r = request.request;
  Sampler sampler(r.sampling, index, vocab_, tokenizer_.end_tokens(), kernels_);
  sampler.observe_prompt({tokens.data(), prompt_length});
  TextAssembler text(tokenizer_, {r.stop, r.include_stop, r.special_text});
  auto choice = std::make_unique<Choice>(request, index, std::move(sampler), std::move(text),
                                         std::move(table), std::move(tokens), prompt_length);
  choice->age = {static_cast<uint64_t>(request.id), index};
  return choice;
}

void EngineCore::add(RequestId id, Request request, TokenSink sink, double arrived) {
  auto active = std::make_unique<ActiveRequest>();
  active->id = id;
  active->sink = std::move(sink);
  active->times.arrived = arrived;
  active->unfinished = request.n;

  std::vector<TokenId> tokens = std::exchange(request.prompt, {});
  const uint32_t prompt_length = static_cast<uint32_t>(tokens.size());
  const uint64_t most =
      std::min<uint64_t>(uint64_t{prompt_length} + request.sampling.max_tokens, config_.max_model_len);
  tokens.reserve(most);
  BlockTable table(layout_, pool_, cache_, request.cache_salt, static_cast<uint32_t>(most));
  active->request = std::move(request);

  auto choice = make_choice(*active, 0, std::move(table), std::move(tokens), prompt_length);
  choice->slots = active->request.n;
  choice->most_output = static_cast<double>(active->request.sampling.max_tokens) * active->request.n;
  choice->priority = active->request.priority;
  choice->user = scheduler_.find_user(active->request.user, active->request.weight);
  if (active->request.prompt_logprobs >= 0) {
    if (prompt_length > 1)
      choice->score_from = 0;
    else if (active->request.prompt_logprobs_sink)
      active->request.prompt_logprobs_sink({});
  }
  active->choices.push_back(std::move(choice));
  scheduler_.add(*active->choices[0]);
  requests_.emplace(static_cast<uint64_t>(id), std::move(active));
}

void EngineCore::cancel(RequestId id) {
  end_request(id, FinishReason::kCancelled, {});
}

void EngineCore::end_request(RequestId id, FinishReason reason, const Status& error) {
  const auto it = requests_.find(static_cast<uint64_t>(id));
  if (it == requests_.end()) return;
  const double now = monotonic_seconds();
  for (const std::unique_ptr<Choice>& choice : it->second->choices) {
    if (choice->state != Sequence::State::kFinished) finish(*choice, reason, error, now);
  }
  reap(now);
}

void EngineCore::cancel_all() {
  while (!requests_.empty()) cancel(RequestId{requests_.begin()->first});
}

void EngineCore::step() {
  const double start = monotonic_seconds();
  trace_.enter(EngineTrace::Phase::kPlanning, start);
  speculator_.propose(scheduler_);
  const SchedulerOutput& plan = scheduler_.plan();
  if (plan.rows == 0) return resolve_stall();
  started_over_ = false;
  runner_.copy_blocks(plan);
  speculator_.draft(scheduler_);
  note_started(plan, start);
  if (config_.check_invariants) {
    const Status status = scheduler_.check_integrity();
    if (!status.ok()) spdlog::critical("{}", status.message());
    CHECK(status.ok());
  }
  wish_logits(plan);
  if (forecast_ != nullptr) forecast_->predict(plan, wanted_);
  const double before = monotonic_seconds();
  trace_step(plan);
  trace_.enter(EngineTrace::Phase::kComputing, before);
  runner_.run(plan, wanted_, speculator_.watch(plan));
  speculator_.show();
  const double now = monotonic_seconds();
  trace_.enter(EngineTrace::Phase::kChoosing, now);
  speculator_.took(now - start);
  sampler_.clear();
  for (const SchedulerOutput::Item& item : plan.items) commit(item, now);
  for (const RowSampler::Advance& advance : sampler_.run()) take(advance, now);
  reap(now);
  const double end = monotonic_seconds();
  note_step(plan, now - before, end - start);
  trace_.move(end);
}

void EngineCore::note_step(const SchedulerOutput& plan, double forward_seconds, double seconds) {
  recorder_.on_step(plan.rows, seconds);
  backlog_.on_step(plan.rows, seconds);
  if (forecast_ == nullptr) return;
  const double without_drafting = seconds - speculator_.drafting_seconds();
  forecast_->observe(plan, forward_seconds, without_drafting);
  speculator_.observe(forecast_->predicted(), without_drafting);
  recorder_.on_forecast(*forecast_, without_drafting);
}

void EngineCore::note_started(const SchedulerOutput& plan, double now) {
  for (const SchedulerOutput::Item& item : plan.items) {
    ActiveRequest& request = static_cast<Choice*>(item.sequence)->request;
    if (request.times.scheduled > 0) continue;
    request.times.scheduled = now;
    leave_queue(request);
    recorder_.on_scheduled(request.times);
  }
}

void EngineCore::leave_queue(ActiveRequest& request) {
  ++requests_started_;
  left_queue_.push_back(std::move(request.request.user));
}

// How many logits each logit row of the plan needs: prompt rows that are scored need all, the rows of the
// next token and of those after the guesses what its sampler says.
void EngineCore::wish_logits(const SchedulerOutput& plan) {
  wanted_.clear();
  for (const SchedulerOutput::Item& item : plan.items) {
    const Choice& choice = static_cast<const Choice&>(*item.sequence);
    const bool scores = choice.score_from < choice.prompt_length;
    for (uint32_t r = 0; r < item.logit_rows; ++r)
      wanted_.push_back(scores ? kAllLogits : choice.sampler.logits_wanted(choice.output_tokens + r));
  }
}

void EngineCore::commit(const SchedulerOutput::Item& item, double now) {
  Choice& choice = static_cast<Choice&>(*item.sequence);
  choice.computed += item.rows - choice.draft.size;  // of guesses only what comes true, once that is known
  choice.scheduled = 0;
  choice.table.commit(choice.tokens, choice.computed);
  if (!score_prompt(choice, item)) {
    finish(choice, FinishReason::kError,
           internal_error("the model gave an unsound logit (NaN or infinity) for a prompt token"), now);
    return;
  }
  if (choice.pending() == 0) prepare(choice, item, now);
}

// Log-probabilities of prompt tokens from the rows just computed. False when a row is unsound.
bool EngineCore::score_prompt(Choice& choice, const SchedulerOutput::Item& item) {
  if (choice.score_from >= choice.prompt_length) return true;
  ActiveRequest& request = choice.request;
  const uint32_t first = choice.computed - item.logit_rows;  // position of the first logit row
  for (uint32_t r = 0; r < item.logit_rows && first + r + 1 < choice.prompt_length; ++r) {
    const std::span<const float> row = runner_.logits(item.first_logit_row + r).all;
    if (kernels_.scan_logits(row.data(), vocab_).unsound) return false;
    const TokenId token = choice.tokens[first + r + 1];
    SampledToken scored = score_token(row, token, static_cast<uint32_t>(request.request.prompt_logprobs),
                                      kernels_, sampler_.scratch());
    scored.rank = rank_of(row, scored);
    request.prompt_logprobs.push_back(std::move(scored));
    choice.score_from = first + r + 1;
  }
  if (choice.score_from + 1 == choice.prompt_length) {
    choice.score_from = Sequence::kNothing;
    if (request.request.prompt_logprobs_sink)
      request.request.prompt_logprobs_sink(std::exchange(request.prompt_logprobs, {}));
  }
  return true;
}

// Everything known is computed: the next token will come from the last row's logits, or, behind guesses, the
// next tokens from theirs.
void EngineCore::prepare(Choice& choice, const SchedulerOutput::Item& item, double now) {
  RequestTimes& times = choice.request.times;
  if (times.first_token == 0) {
    times.first_token = now;
    recorder_.on_first_token(times, choice.prompt_length);
  }
  if (choice.sampler.params().max_tokens == 0) {
    finish(choice, FinishReason::kLength, {}, now);
    return;
  }
  const uint32_t first = item.first_logit_row + item.logit_rows - 1 - choice.draft.size;
  const RowLogits row = runner_.logits(first);
  if (choice.slots > 1) part_choices(choice, row, now);
  sampler_.add(choice, row);
  for (uint32_t i = 1; i <= choice.draft.size; ++i) sampler_.add_row(runner_.logits(first + i));
}

// The choice has its next tokens. Those of its guesses that came true are computed already; what was computed
// of the others is not looked at again.
void EngineCore::take(const RowSampler::Advance& advance, double now) {
  Choice& choice = *advance.choice;
  recorder_.on_tokens(advance.tokens,
                      choice.output_tokens == advance.tokens ? 0 : now - choice.last_token_time);
  if (advance.tokens > 0) {
    choice.last_token_time = now;
    ++choice.drafting.steps;
  }
  if (choice.draft.size > 0) {
    if (advance.tokens > 0) choice.computed = choice.known() - 1;
    choice.table.commit(choice.tokens, choice.computed);
    choice.table.truncate_to(choice.computed);
  }
  speculator_.settle(choice, advance.tokens);
  if (advance.finish != FinishReason::kNone)
    finish(choice, advance.finish, advance.error, now);
  else
    choice.request.sink(choice.take_event());
}

// The prompt of n choices is computed: the others start from choice 0's blocks and from the same logits.
void EngineCore::part_choices(Choice& first, const RowLogits& row, double now) {
  ActiveRequest& request = first.request;
  for (uint32_t i = 1; i < request.request.n; ++i) {
    std::vector<TokenId> tokens;
    tokens.reserve(first.tokens.capacity());
    tokens.assign(first.tokens.begin(), first.tokens.end());
    auto choice = make_choice(request, i, first.table.fork(), std::move(tokens), first.prompt_length);
    choice->computed = first.computed;
    choice->cached_tokens = first.cached_tokens;
    Choice& added = *request.choices.emplace_back(std::move(choice));
    scheduler_.add_fork(first, added);
    std::copy(row.all.begin(), row.all.end(), row_copy_.begin());
    take(sampler_.advance(added, row.best != nullptr ? row : RowLogits{row_copy_}), now);
  }
}

void EngineCore::finish(Choice& choice, FinishReason reason, const Status& error, double now) {
  ActiveRequest& request = choice.request;
  speculator_.close(choice);
  scheduler_.remove(choice);
  recorder_.on_choice_finished(reason, choice.output_tokens);
  if (reason == FinishReason::kStop || reason == FinishReason::kLength)
    backlog_.on_answer(choice.output_tokens);
  request.times.finished = now;
  request.unfinished -= choice.slots;
  if (request.unfinished == 0) ended_.push_back(static_cast<uint64_t>(request.id));
  choice.event.finish = reason;
  choice.event.error = error;
  request.sink(choice.take_event());
  finish_unparted(choice, reason, error);
}

// The choices that have not parted from this one end as it does.
void EngineCore::finish_unparted(Choice& choice, FinishReason reason, const Status& error) {
  for (uint32_t i = 1; i < choice.slots; ++i) {
    TokenEvent event = choice.take_event();
    event.choice = i;
    event.finish = reason;
    event.error = error;
    recorder_.on_choice_finished(reason, 0);
    choice.request.sink(std::move(event));
  }
}

void EngineCore::reap(double now) {
  for (const uint64_t id : ended_) {
    const auto it = requests_.find(id);
    CHECK(it != requests_.end());
    if (it->second->times.scheduled == 0) leave_queue(*it->second);
    ++requests_ended_;
    it->second->times.finished = now;
    recorder_.on_request_finished(it->second->times);
    requests_.erase(it);
  }
  ended_.clear();
}

const EngineStats& EngineCore::update_stats() {
  EngineStats& stats = recorder_.stats();
  stats.running = static_cast<uint32_t>(scheduler_.running().size());
  stats.waiting = static_cast<uint32_t>(scheduler_.queue().size());
  stats.queue = {.by_class = scheduler_.queue().by_class(),
                 .users = scheduler_.queue().users_waiting(),
                 .longest = scheduler_.queue().longest(),
                 .service_gap = scheduler_.queue().service_gap()};
  const BacklogForecast::Seconds backlog = backlog_.estimate(scheduler_);
  stats.backlog_seconds = backlog.all;
  stats.queue_seconds = backlog.waiting;
  stats.blocks_total = pool_.total();
  stats.blocks_used = pool_.owned();
  stats.blocks_cached = pool_.cached();
  stats.blocks_free = pool_.free();
  stats.speculation.drafters.assign(speculator_.stats().begin(), speculator_.stats().end());
  stats.speculation.without_draft = speculator_.without_draft();
  stats.speculation.predicted_gain = speculator_.predicted_gain();
  stats.speculation.saved_seconds = speculator_.saved_seconds();
  stats.preemptions = scheduler_.counters().preemptions;
  stats.prefix_queries = scheduler_.counters().prefix_queries;
  stats.prefix_hits = scheduler_.counters().prefix_hits;
  if (persist_ != nullptr) stats.persistence = persist_->stats();
  uint64_t empty = 0;
  for (const Sequence* s : scheduler_.running())
    empty += uint64_t{s->table.entries() * layout_.block_size() - s->computed} * layout_.units();
  const uint64_t slots = uint64_t{pool_.owned()} * layout_.block_size();
  stats.kv_waste = slots == 0 ? 0.0 : std::min(1.0, static_cast<double>(empty) / static_cast<double>(slots));
  return stats;
}

Status EngineCore::check_integrity() const {
  KVASIR_RETURN_IF_ERROR(scheduler_.check_integrity());
  if (has_work()) return {};
  if (pool_.owned() != 0 || !requests_.empty())
    return internal_error(fmt::format("nothing runs, but {} blocks are owned and {} requests are held",
                                      pool_.owned(), requests_.size()));
  return {};
}

}  // namespace kvasir
