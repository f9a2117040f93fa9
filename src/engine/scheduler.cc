#include "engine/scheduler.h"

#include <algorithm>

#include "base/check.h"

namespace kvasir {
namespace {

bool older(const Sequence* a, const Sequence* b) {
  return a->age < b->age;
}

void erase(std::vector<Sequence*>& list, const Sequence& s) {
  const auto it = std::find(list.begin(), list.end(), &s);
  CHECK(it != list.end());
  list.erase(it);
}

// Pending rows before the first that wants logits.
uint32_t unscored_rows(const Sequence& s) {
  return std::max(s.computed, s.logits_from()) - s.computed;
}

// Logit rows that computing positions [first, first + rows) of a sequence takes.
uint32_t logit_rows_of(const Sequence& s, uint32_t rows) {
  const uint32_t from = std::max(s.computed, s.logits_from());
  return s.computed + rows > from ? s.computed + rows - from : 0;
}

// What rows cost where some answers are written at a time, in the middle of a short conversation.
TokenPrices token_prices(const Scheduler::Options& options) {
  constexpr uint32_t kAnswers = 8, kContext = 512;
  if (options.costs == nullptr) return {};
  return TokenPrices::of(*options.costs, options.max_num_batched_tokens,
                         std::min({kAnswers, options.max_num_seqs, options.max_logit_rows}),
                         std::min(kContext, options.max_model_len / 2));
}

}  // namespace

Scheduler::Scheduler(const Options& options, const KvLayout& layout, BlockPool& pool, PrefixCache& cache)
    : options_(options),
      layout_(layout),
      pool_(pool),
      cache_(cache),
      queue_(token_prices(options)),
      shared_(layout, options.max_num_seqs + 1) {
  running_.reserve(options.max_num_seqs + 1);
  decodes_.reserve(options.max_num_seqs + 1);
  prompts_.reserve(options.max_num_seqs + 1);
  output_.items.reserve(options.max_num_seqs);
  output_.copies.reserve(size_t{options.max_num_seqs} * layout.units());
}

void Scheduler::add(Sequence& sequence) {
  CHECK(layout_.blocks_for(sequence.known()) <= pool_.total() && sequence.slots <= options_.max_num_seqs);
  sequence.state = Sequence::State::kWaiting;
  queue_.arrive(sequence);
}

void Scheduler::add_fork(Sequence& parent, Sequence& child) {
  CHECK(parent.slots > 1);
  --parent.slots;
  child.state = Sequence::State::kRunning;
  child.admitted_before = true;
  child.scheduled = 0;
  child.user = parent.user;
  child.priority = parent.priority;
  child.urgent = parent.urgent;
  child.charged = child.computed;
  insert_running(child);
}

void Scheduler::insert_running(Sequence& s) {
  running_.insert(std::upper_bound(running_.begin(), running_.end(), &s, older), &s);
}

void Scheduler::remove(Sequence& sequence) {
  if (sequence.state == Sequence::State::kFinished) return;
  if (sequence.state == Sequence::State::kRunning) {
    erase(running_, sequence);
    queue_.stop(sequence);
  } else {
    queue_.leave(sequence);
  }
  sequence.state = Sequence::State::kFinished;
  sequence.table.release();
  drop_followers(sequence);
}

void Scheduler::drop_followers(Sequence& leader) {
  while (leader.followers.first != nullptr) queue_.rejoin(*leader.followers.first);
}

std::vector<Sequence*> Scheduler::waiting() const {
  std::vector<Sequence*> all;
  queue_.list(&all);
  for (const Sequence* s : running_) {
    for (Sequence* f = s->followers.first; f != nullptr; f = f->by_rank.next) all.push_back(f);
  }
  std::sort(all.begin(), all.end(), older);
  return all;
}

const SchedulerOutput& Scheduler::plan() {
  output_.copies.clear();
  rows_left_ = options_.max_num_batched_tokens;
  logit_rows_left_ = options_.max_logit_rows;
  for (Sequence* s : running_) s->scheduled = 0;
  load_ = {};
  shared_.clear();
  prompt_rows_ = 0;
  target_seconds_ = 0;
  oldest_ = running_.empty() ? nullptr : running_.front();
  schedule_decodes();
  set_target();
  schedule_prompts();
  build_output();
  return output_;
}

// A prompt that is the oldest keeps one row out of the decodes' reach.
void Scheduler::schedule_decodes() {
  const uint32_t kept = oldest_ != nullptr && oldest_->pending() > 1 ? 1 : 0;
  rows_left_ -= kept;
  logit_rows_left_ -= kept;
  decodes_.clear();
  for (Sequence* s : running_) {
    if (s->pending() == 1) decodes_.push_back(s);
  }
  for (Sequence* s : decodes_) {
    if (s->state == Sequence::State::kRunning) schedule(*s, 1);
  }
  schedule_drafts();
  rows_left_ += kept;
  logit_rows_left_ += kept;
}

// Prompts, of those that run and those that wait, in the order of the queue.
void Scheduler::schedule_prompts() {
  rejoin_followers();
  prompts_.clear();
  for (Sequence* s : running_) {
    if (s->pending() > 1) prompts_.push_back(s);
  }
  bool line_moves = true;
  while (rows_left_ > 0) {
    Sequence* running = first_prompt();
    Sequence* waiting = line_moves && logit_rows_left_ > 0 ? queue_.next() : nullptr;
    if (running == nullptr && waiting == nullptr) break;
    const bool wait_over = running == nullptr || (waiting != nullptr && queue_.before(*waiting, *running));
    if ((wait_over ? waiting : running) != oldest_) hold_rows_for_oldest(rows_to_hold());
    if (wait_over)
      line_moves = admit(*waiting);
    else
      advance(*running);
  }
  if (held_rows_ > 0) advance(*oldest_);
}

Sequence* Scheduler::first_prompt() const {
  Sequence* first = nullptr;
  for (Sequence* s : prompts_) {
    if (first == nullptr || queue_.before(*s, *first)) first = s;
  }
  return first;
}

void Scheduler::advance(Sequence& prompt) {
  std::erase(prompts_, &prompt);
  schedule(prompt, prompt.pending(), &prompt == oldest_ ? release_held_rows() : 0);
}

// What the oldest gets at least, if it is a prompt whose turn has not come.
uint32_t Scheduler::rows_to_hold() const {
  if (held_rows_ > 0 || std::find(prompts_.begin(), prompts_.end(), oldest_) == prompts_.end()) return 0;
  uint32_t rows = rows_within_budget(*oldest_, oldest_->pending());
  if (target_seconds_ > 0)
    rows =
        options_.costs->most_rows(load_, oldest_->computed, rows, target_seconds_, unscored_rows(*oldest_));
  return std::max(1u, rows / kOldestShare);
}

void Scheduler::hold_rows_for_oldest(uint32_t rows) {
  if (rows == 0) return;
  held_rows_ = rows;
  rows_left_ -= rows;
  --logit_rows_left_;
  account_all();
}

uint32_t Scheduler::release_held_rows() {
  const uint32_t rows = held_rows_;
  if (rows == 0) return 0;
  held_rows_ = 0;
  rows_left_ += rows;
  ++logit_rows_left_;
  account_all();
  return rows;
}

// Guesses get what the decodes leave of rows, and of blocks what nobody needs for tokens that are known:
// nobody has to go for a guess. What does not fit is dropped.
void Scheduler::schedule_drafts() {
  bool any = false;
  for (const Sequence* s : running_) any = any || s->draft.size > 0;
  if (!any) return;
  uint32_t spare = pool_.available() - std::min(pool_.available(), blocks_promised());
  for (Sequence* s : running_) {
    if (s->draft.size == 0) continue;
    const uint32_t wanted =
        s->scheduled == 1
            ? std::min({s->draft.size, options_.max_model_len - s->known(), rows_left_, logit_rows_left_})
            : 0;
    s->draft.size = rows_that_fit(*s, s->computed + 1, wanted, spare);
    if (s->draft.size == 0) continue;
    spare -= s->table.blocks_wanted(s->computed + 1, s->draft.size);
    CHECK(s->table.prepare(s->computed + 1, s->draft.size, &output_.copies));
    s->scheduled += s->draft.size;
    rows_left_ -= s->draft.size;
    logit_rows_left_ -= s->draft.size;
  }
  account_all();
}

// After the decodes: what the step may take, if they wait for it.
void Scheduler::set_target() {
  if (options_.costs == nullptr || load_.rows == 0) return;
  target_seconds_ = options_.max_gap > 0 ? options_.max_gap
                                         : std::max(kLeastGap, kGapDecodes * options_.costs->seconds(load_));
}

// Of `rows` prompt rows after `context` tokens, which but for the first `unscored` want logits, those that
// the step has time for; the first prompt gets a block in any case.
uint32_t Scheduler::rows_in_time(uint32_t context, uint32_t rows, uint32_t unscored) const {
  if (target_seconds_ == 0 || rows == 0) return rows;
  const uint32_t fitting = options_.costs->most_rows(load_, context, rows, target_seconds_, unscored);
  return prompt_rows_ == 0 ? std::max(fitting, std::min(rows, layout_.block_size())) : fitting;
}

void Scheduler::account(const Sequence& s) {
  if (options_.costs == nullptr || s.scheduled == 0) return;
  const uint32_t logits = logit_rows_of(s, s.scheduled);
  const bool scored = s.score_from < s.prompt_length;
  options_.costs->add(load_, shared_.rows_of(s, s.scheduled), {logits, scored ? logits : 0});
}

void Scheduler::account_all() {
  load_ = {};
  shared_.clear();
  for (const Sequence* s : running_) account(*s);
  if (options_.costs != nullptr && held_rows_ > 0)
    options_.costs->add(load_, {.rows = held_rows_, .context = oldest_->computed}, 1);
}

uint32_t Scheduler::rows_within_budget(const Sequence& s, uint32_t rows) const {
  return std::min({rows, rows_left_, unscored_rows(s) + logit_rows_left_});
}

// Rows from position `first` on, at most `rows`, for which `blocks` suffice: whole table entries less, until
// they fit.
uint32_t Scheduler::rows_that_fit(const Sequence& s, uint32_t first, uint32_t rows, uint32_t blocks) const {
  const uint32_t size = layout_.block_size();
  while (rows > 0 && s.table.blocks_wanted(first, rows) > blocks) {
    const uint32_t last_entry_start = (first + rows - 1) / size * size;
    rows = last_entry_start > first ? last_entry_start - first : 0;
  }
  return rows;
}

// Gives s up to `rows` rows, `least` whatever the time they take, preempting others for at least one. False
// when s gets none, be it because it was the one that had to go.
bool Scheduler::schedule(Sequence& s, uint32_t rows, uint32_t least) {
  rows = rows_within_budget(s, rows);
  rows = std::max(rows_in_time(s.computed, rows, unscored_rows(s)), std::min(rows, least));
  if (rows == 0) return false;
  uint32_t fitting = rows_that_fit(s, s.computed, rows, pool_.available());
  while (fitting == 0) {
    Sequence* worst = to_preempt();
    CHECK(worst != nullptr);  // a sequence that was let in fits the pool alone
    preempt(*worst);
    if (worst == &s) return false;
    fitting = rows_that_fit(s, s.computed, rows, pool_.available());
  }
  CHECK(s.table.prepare(s.computed, fitting, &output_.copies));
  s.scheduled = fitting;
  queue_.charge(s, fitting);
  account(s);
  if (target_seconds_ > 0) prompt_rows_ += fitting;
  rows_left_ -= fitting;
  logit_rows_left_ -= logit_rows_of(s, fitting);
  return true;
}

// The youngest of the worst priority; never the oldest. Null when nobody else runs.
Sequence* Scheduler::to_preempt() const {
  Sequence* worst = nullptr;
  for (Sequence* s : running_) {
    if (s != oldest_ && (worst == nullptr || s->rank() >= worst->rank())) worst = s;
  }
  return worst;
}

void Scheduler::preempt(Sequence& s) {
  erase(running_, s);
  std::erase(prompts_, &s);
  rows_left_ += s.scheduled;
  logit_rows_left_ += logit_rows_of(s, s.scheduled);
  s.scheduled = 0;
  s.computed = 0;
  s.draft.clear();
  s.state = Sequence::State::kWaiting;
  s.table.release();
  drop_followers(s);
  queue_.put_back(s);
  ++counters_.preemptions;
  account_all();
}

void Scheduler::start_over() {
  while (!running_.empty()) preempt(*running_.back());
}

uint32_t Scheduler::slots_used() const {
  uint32_t slots = 0;
  for (const Sequence* s : running_) slots += s->slots;
  return slots;
}

const SchedulerOutput& Scheduler::trim_drafts() {
  for (const SchedulerOutput::Item& item : output_.items) {
    Sequence& s = *item.sequence;
    if (s.pending() != 1) continue;
    const uint32_t cut = s.scheduled - 1 - s.draft.size;
    s.scheduled -= cut;
    rows_left_ += cut;
    logit_rows_left_ += cut;
  }
  build_output();
  return output_;
}

void Scheduler::build_output() {
  output_.items.clear();
  output_.rows = 0;
  output_.logit_rows = 0;
  for (Sequence* s : running_) {
    if (s->scheduled == 0) continue;
    const uint32_t logit_rows = logit_rows_of(*s, s->scheduled);
    output_.items.push_back({s, s->scheduled, output_.logit_rows, logit_rows});
    output_.rows += s->scheduled;
    output_.logit_rows += logit_rows;
  }
  DCHECK(output_.rows + rows_left_ == options_.max_num_batched_tokens);
  DCHECK(output_.logit_rows + logit_rows_left_ == options_.max_logit_rows);
}

}  // namespace kvasir
