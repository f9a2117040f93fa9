#include "scheduler_world.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvasir::sim {

namespace {

constexpr uint32_t kWords = 7;      // tokens that answers are made of; few, so that answers meet again
constexpr uint64_t kEndEvery = 40;  // about one token in so many ends an answer

}  // namespace

std::string salt_text(uint32_t salt) {
  return salt == 0 ? "" : fmt::format("salt {}", salt);
}

TokenId token_after(uint64_t history, uint64_t path) {
  const uint64_t draw = next_value(history ^ path, 0);
  return draw % kEndEvery == 0 ? kNoToken : static_cast<TokenId>((draw >> 8) % kWords);
}

SchedulerWorld::SchedulerWorld(const Setup& setup)
    : setup_(setup),
      layout_(layout_of(setup)),
      pool_(setup.blocks),
      cache_(layout_, pool_,
             {.enabled = setup.caching,
              .hash_seed = 5,
              .hash_bits = setup.hash_bits,
              .spare_nodes = setup.spare_nodes}),
      scheduler_({.max_num_seqs = setup.max_num_seqs,
                  .max_num_batched_tokens = setup.max_num_batched_tokens,
                  .max_logit_rows = setup.max_logit_rows,
                  .max_model_len = setup.max_model_len,
                  .costs = setup.costs ? &costs_ : nullptr,
                  .max_gap = setup.max_gap},
                 layout_, pool_, cache_),
      contents_(layout_, pool_) {
  for (uint32_t u = 0; u < setup.users; ++u) CHECK(scheduler_.find_user(user_name(u), user_weight(u)) == u);
}

SchedulerWorld::~SchedulerWorld() = default;

Status SchedulerWorld::apply(const Op& op) {
  ++tally_.operations;
  if (op.kind == Op::Kind::kArrive) arrive(op.arrival);
  if (op.kind == Op::Kind::kCancel) KVASIR_RETURN_IF_ERROR(cancel(op.target));
  if (op.kind == Op::Kind::kLend) lend(op.times);
  if (op.kind == Op::Kind::kGiveBack) give_back();
  for (uint32_t i = 0; op.kind == Op::Kind::kStep && i < op.times && scheduler_.has_work(); ++i)
    KVASIR_RETURN_IF_ERROR(step());
  return check();
}

std::vector<TokenId> SchedulerWorld::prompt_of(const Arrival& a, uint32_t most) const {
  std::vector<TokenId> prompt;
  if (a.source != Arrival::Source::kText && !requests_.empty()) {
    const SimRequest& target = *requests_[a.target % requests_.size()];
    prompt = target.prompt;
    if (a.source == Arrival::Source::kTurn && !target.choices.empty())
      prompt = target.choices[a.seed % target.choices.size()]->tokens;
  }
  for (uint32_t p = 0; prompt.empty() || (a.source != Arrival::Source::kRetry && p < a.length); ++p) {
    const uint64_t text = p < a.shared ? 0 : a.text + 1;
    prompt.push_back(static_cast<TokenId>(next_value(a.family * 64 + text, static_cast<TokenId>(p)) % 97));
  }
  if (prompt.size() > most) prompt.resize(most);
  return prompt;
}

void SchedulerWorld::arrive(const Arrival& arrival) {
  auto request = std::make_unique<SimRequest>();
  request->arrival = arrival;
  request->number = static_cast<uint32_t>(requests_.size());
  request->arrived_step = tally_.steps;
  request->prompt = prompt_of(arrival, setup_.max_model_len - (arrival.max_tokens > 0));
  const uint32_t prompt_length = static_cast<uint32_t>(request->prompt.size());
  const uint32_t most = std::min(prompt_length + arrival.max_tokens, setup_.max_model_len);
  BlockTable table(layout_, pool_, cache_, salt_text(arrival.salt), most);
  auto choice = std::make_unique<SimChoice>(*request, 0, std::move(table), request->prompt);
  choice->age = {request->number + 1, 0};
  choice->user = arrival.user;
  choice->priority = arrival.priority;
  choice->slots = request->unparted = std::min(arrival.n, setup_.max_num_seqs);
  if (arrival.scored && prompt_length > 1) choice->score_from = 0;
  work_ += uint64_t{most} * choice->slots;
  scheduler_.add(*choice);
  request->choices.push_back(std::move(choice));
  requests_.push_back(std::move(request));
  ++tally_.requests;
}

// Of any request, also of one that has ended long ago: the client of a slow reader that leaves late.
Status SchedulerWorld::cancel(uint32_t target) {
  if (requests_.empty()) return {};
  for (auto& choice : requests_[target % requests_.size()]->choices) {
    if (choice->state != Sequence::State::kFinished) end(*choice, true);
  }
  return {};
}

// Free and cached blocks, whoever counted on them.
void SchedulerWorld::lend(uint32_t blocks) {
  const uint32_t kept = layout_.blocks_for(setup_.max_model_len);
  const uint32_t most = pool_.total() - std::min(pool_.total(), kept + static_cast<uint32_t>(lent_.size()));
  for (uint32_t i = 0; i < std::min(blocks, most) && cache_.make_room(1); ++i) {
    lent_.push_back(pool_.take());
    ++tally_.lent;
  }
}

void SchedulerWorld::give_back() {
  for (const BlockId id : lent_) pool_.release(id);
  lent_.clear();
}

Status SchedulerWorld::step() {
  const Before before = look();
  const SchedulerOutput& plan = scheduler_.plan();
  KVASIR_RETURN_IF_ERROR(check());
  KVASIR_RETURN_IF_ERROR(check_plan(plan, before));
  KVASIR_RETURN_IF_ERROR(check_pace(plan, before));
  KVASIR_RETURN_IF_ERROR(check_admissions(before));
  KVASIR_RETURN_IF_ERROR(check_turns(before));
  KVASIR_RETURN_IF_ERROR(check_idleness(plan));
  KVASIR_RETURN_IF_ERROR(compute(plan));
  std::vector<SimChoice*> caught_up;
  for (const SchedulerOutput::Item& item : plan.items) commit(item, &caught_up);
  for (SimChoice* choice : caught_up) accept(*choice);
  KVASIR_RETURN_IF_ERROR(check_entered());
  ++tally_.steps;
  tally_.rows += plan.rows;
  tally_.copies += plan.copies.size();
  tally_.preemptions = scheduler_.counters().preemptions;
  return check();
}

// As a model would: copies, then all rows are written, then all are read.
Status SchedulerWorld::compute(const SchedulerOutput& plan) {
  for (const BlockCopy& copy : plan.copies) contents_.copy(copy);
  StepLoad load;
  for (const SchedulerOutput::Item& item : plan.items) {
    const SimChoice& s = static_cast<const SimChoice&>(*item.sequence);
    costs_.add(load, {.rows = item.rows, .context = s.computed}, item.logit_rows);
    for (uint32_t p = s.computed; p < s.computed + item.rows; ++p)
      KVASIR_RETURN_IF_ERROR(contents_.write(s.table, p, s.tokens[p], s.values[p]));
  }
  for (const SchedulerOutput::Item& item : plan.items) {
    const SimChoice& s = static_cast<const SimChoice&>(*item.sequence);
    KVASIR_RETURN_IF_ERROR(contents_.read(s.table, s.computed, item.rows, s.values));
  }
  tally_.seconds += costs_.seconds(load);
  return {};
}

void SchedulerWorld::commit(const SchedulerOutput::Item& item, std::vector<SimChoice*>* caught_up) {
  SimChoice& s = static_cast<SimChoice&>(*item.sequence);
  s.computed += item.rows;
  s.scheduled = 0;
  s.table.commit(s.tokens, s.computed);
  if (s.score_from < s.prompt_length && item.logit_rows > 0) {
    s.score_from = std::min(s.computed, s.prompt_length - 1);
    if (s.score_from + 1 == s.prompt_length) s.score_from = Sequence::kNothing;
  }
  if (s.pending() > 0) return;
  if (s.request.arrival.max_tokens == 0) return end(s, false);
  if (s.slots > 1) part_choices(s);
  caught_up->push_back(&s);
}

void SchedulerWorld::part_choices(SimChoice& first) {
  const uint32_t n = std::exchange(first.request.unparted, 0);
  for (uint32_t i = 1; i < n; ++i) {
    std::vector<TokenId> tokens = first.tokens;
    auto child = std::make_unique<SimChoice>(first.request, i, first.table.fork(), std::move(tokens));
    child->age = {first.age.first, i};
    child->computed = first.computed;
    SimChoice& added = *first.request.choices.emplace_back(std::move(child));
    scheduler_.add_fork(first, added);
    ++tally_.forks;
    accept(added);
  }
}

// The next token comes out of what the KV cache holds at the last position.
void SchedulerWorld::accept(SimChoice& s) {
  const TokenId token = token_after(contents_.value_at(s.table, s.known() - 1), s.path());
  if (token == kNoToken) return end(s, false);
  s.tokens.push_back(token);
  s.extend_values();
  if (s.generated() >= s.request.arrival.max_tokens || s.known() >= setup_.max_model_len) end(s, false);
}

void SchedulerWorld::end(SimChoice& s, bool cancelled) {
  s.ends += 1;
  s.was_cancelled = cancelled;
  scheduler_.remove(s);
  ++(cancelled ? tally_.cancelled : tally_.finished);
}

Status SchedulerWorld::check() {
  ++tally_.checks;
  KVASIR_RETURN_IF_ERROR(scheduler_.check_integrity(lent_));
  KVASIR_RETURN_IF_ERROR(contents_.check_retained());
  for (const Sequence* s : scheduler_.running()) {
    if (s->state != Sequence::State::kRunning || s->pending() == 0)
      return internal_error(fmt::format("request {} runs and has {} tokens to compute, state {}",
                                        s->age.first, s->pending(), static_cast<int>(s->state)));
  }
  KVASIR_RETURN_IF_ERROR(check_waits());
  return probe();
}

Status SchedulerWorld::finish() {
  while (scheduler_.has_work()) KVASIR_RETURN_IF_ERROR(step());
  KVASIR_RETURN_IF_ERROR(check_answers());
  give_back();
  if (pool_.owned() != 0)
    return internal_error(fmt::format("nothing runs, and {} blocks have an owner", pool_.owned()));
  requests_.clear();
  CHECK(cache_.make_room(pool_.total()));
  if (pool_.free() != pool_.total() || cache_.node_count() != 0 || cache_.salt_count() != 0)
    return internal_error(
        fmt::format("an emptied cache keeps {} nodes and {} salts, {} of {} blocks are free",
                    cache_.node_count(), cache_.salt_count(), pool_.free(), pool_.total()));
  return {};
}

}  // namespace kvasir::sim
