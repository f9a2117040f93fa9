#include "engine/scheduler.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace kvasir {
namespace {

bool older(const Sequence* a, const Sequence* b) {
  return a->age < b->age;
}

void insert_by_age(std::vector<Sequence*>& list, Sequence& s) {
  list.insert(std::upper_bound(list.begin(), list.end(), &s, older), &s);
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

// Length of the common prefix of two sequences, at most `limit`, in whole blocks of tokens.
uint32_t common_prefix(const Sequence& a, const Sequence& b, uint32_t limit, uint32_t block_size) {
  const uint32_t end = std::min({a.known(), b.known(), limit});
  const auto differ = std::mismatch(a.tokens.begin(), a.tokens.begin() + end, b.tokens.begin());
  return static_cast<uint32_t>(differ.first - a.tokens.begin()) / block_size * block_size;
}

}  // namespace

Scheduler::Scheduler(const Options& options, const KvLayout& layout, BlockPool& pool, PrefixCache& cache)
    : options_(options), layout_(layout), pool_(pool), cache_(cache) {
  running_.reserve(options.max_num_seqs + 1);
  output_.items.reserve(options.max_num_seqs);
  output_.copies.reserve(size_t{options.max_num_seqs} * layout.units());
}

void Scheduler::add(Sequence& sequence) {
  CHECK(layout_.blocks_for(sequence.known()) <= pool_.total() && sequence.slots <= options_.max_num_seqs);
  sequence.state = Sequence::State::kWaiting;
  insert_by_age(waiting_, sequence);
}

void Scheduler::add_fork(Sequence& parent, Sequence& child) {
  CHECK(parent.slots > 1);
  --parent.slots;
  child.state = Sequence::State::kRunning;
  child.admitted_before = true;
  child.scheduled = 0;
  insert_by_age(running_, child);
}

void Scheduler::remove(Sequence& sequence) {
  if (sequence.state == Sequence::State::kFinished) return;
  erase(sequence.state == Sequence::State::kRunning ? running_ : waiting_, sequence);
  sequence.state = Sequence::State::kFinished;
  sequence.table.release();
  drop_followers(sequence);
}

void Scheduler::drop_followers(const Sequence& leader) {
  for (Sequence* s : waiting_) {
    if (s->leader == &leader) s->leader = nullptr;
  }
}

const SchedulerOutput& Scheduler::plan() {
  output_.copies.clear();
  rows_left_ = options_.max_num_batched_tokens;
  logit_rows_left_ = options_.max_logit_rows;
  for (Sequence* s : running_) s->scheduled = 0;
  load_ = {};
  prompt_rows_ = 0;
  target_seconds_ = 0;

  // A prompt that is the oldest keeps one row out of the decodes' reach.
  const uint32_t kept = !running_.empty() && running_.front()->pending() > 1 ? 1 : 0;
  rows_left_ -= kept;
  logit_rows_left_ -= kept;
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->pending() == 1) schedule(*running_[i], 1);
  }
  schedule_drafts();
  rows_left_ += kept;
  logit_rows_left_ += kept;
  set_target();
  for (size_t i = 0; i < running_.size(); ++i) {
    if (running_[i]->pending() > 1) schedule(*running_[i], running_[i]->pending());
  }
  admit_waiting();
  build_output();
  return output_;
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
  if (options_.costs != nullptr && s.scheduled > 0)
    options_.costs->add(load_, {.rows = s.scheduled, .context = s.computed}, logit_rows_of(s, s.scheduled));
}

uint32_t Scheduler::rows_within_budget(const Sequence& s, uint32_t rows) const {
  return std::min({rows, rows_left_, unscored_rows(s) + logit_rows_left_});
}

void Scheduler::account_all() {
  load_ = {};
  for (const Sequence* s : running_) account(*s);
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

// Gives s up to `rows` rows, `least` whatever the time they take, preempting younger sequences for at least
// one. False when s gets none, be it because it was the youngest and had to go itself.
bool Scheduler::schedule(Sequence& s, uint32_t rows, uint32_t least) {
  rows = rows_within_budget(s, rows);
  rows = std::max(rows_in_time(s.computed, rows, unscored_rows(s)), std::min(rows, least));
  if (rows == 0) return false;
  uint32_t fitting = rows_that_fit(s, s.computed, rows, pool_.available());
  while (fitting == 0) {
    CHECK(running_.size() > 1);  // a sequence that was let in fits the pool alone
    const bool was_youngest = running_.back() == &s;
    preempt_youngest();
    if (was_youngest) return false;
    fitting = rows_that_fit(s, s.computed, rows, pool_.available());
  }
  CHECK(s.table.prepare(s.computed, fitting, &output_.copies));
  s.scheduled = fitting;
  account(s);
  if (target_seconds_ > 0) prompt_rows_ += fitting;
  rows_left_ -= fitting;
  logit_rows_left_ -= logit_rows_of(s, fitting);
  return true;
}

void Scheduler::preempt_youngest() {
  Sequence& s = *running_.back();
  running_.pop_back();
  rows_left_ += s.scheduled;
  logit_rows_left_ += logit_rows_of(s, s.scheduled);
  s.scheduled = 0;
  s.computed = 0;
  s.draft.clear();
  s.state = Sequence::State::kWaiting;
  s.table.release();
  drop_followers(s);
  insert_by_age(waiting_, s);
  ++counters_.preemptions;
  account_all();
}

void Scheduler::start_over() {
  while (!running_.empty()) preempt_youngest();
  for (Sequence* s : waiting_) s->leader = nullptr;
}

uint32_t Scheduler::slots_used() const {
  uint32_t slots = 0;
  for (const Sequence* s : running_) slots += s->slots;
  return slots;
}

void Scheduler::admit_waiting() {
  uint32_t slots = slots_used();
  size_t i = 0;
  while (i < waiting_.size() && rows_left_ > 0 && logit_rows_left_ > 0) {
    Sequence& s = *waiting_[i];
    if (slots + s.slots > options_.max_num_seqs) break;
    if (s.leader != nullptr && s.leader->computed < s.leader_tokens) {
      ++i;
      continue;
    }
    const PrefixCache::Hit hit = look_up(s);
    if (follows_leader(s, hit)) {
      ++i;
      continue;
    }
    if (!has_room(s, hit) || rows_in_time(hit.tokens, s.known() - hit.tokens) == 0) break;
    waiting_.erase(waiting_.begin() + static_cast<ptrdiff_t>(i));
    slots += s.slots;
    start(s, hit);
    CHECK(schedule(s, s.pending(), 1));
  }
}

PrefixCache::Hit Scheduler::look_up(const Sequence& s) const {
  // One token at least is computed, for its logits; rows to be scored need theirs too.
  return cache_.lookup(s.table.salt(), s.tokens, std::min(s.known() - 1, s.logits_from()));
}

// A running sequence that will compute more of s's prefix than the cache holds becomes its leader.
bool Scheduler::follows_leader(Sequence& s, const PrefixCache::Hit& hit) {
  s.leader = nullptr;
  const uint32_t limit = std::min(s.known() - 1, s.logits_from());
  const uint32_t size = layout_.block_size();
  if (!cache_.enabled() || limit < size) return false;
  uint32_t best = hit.tokens;
  for (const Sequence* r : running_) {
    if (r->pending() <= 1 || r->table.salt() != s.table.salt()) continue;
    const uint32_t common = common_prefix(s, *r, limit, size);
    if (common > best && common > r->computed) {
      best = common;
      s.leader = r;
      s.leader_tokens = common;
    }
  }
  return s.leader != nullptr;
}

// Blocks that running sequences still need for the tokens they know and the next one.
uint32_t Scheduler::blocks_promised() const {
  uint32_t promised = 0;
  for (const Sequence* s : running_) {
    const uint32_t all = layout_.blocks_for(std::min(s->known() + 1, options_.max_model_len));
    promised += all > s->table.block_count() ? all - s->table.block_count() : 0;
  }
  return promised;
}

bool Scheduler::has_room(const Sequence& s, const PrefixCache::Hit& hit) const {
  const uint32_t all = layout_.blocks_for(std::min(s.known() + 1, options_.max_model_len));
  uint64_t need = all > hit.blocks ? all - hit.blocks : 0;
  need += hit.idle_blocks;
  if (hit.tokens % layout_.block_size() != 0 && hit.idle_blocks < hit.blocks)
    need += layout_.units();  // the copy of a last block that is shared
  // One that had to go before comes back only when everybody can grow by a block: else it would soon go
  // again.
  if (s.admitted_before) need += uint64_t{running_.size()} * layout_.units();
  return need + blocks_promised() <= pool_.available();
}

void Scheduler::start(Sequence& s, const PrefixCache::Hit& hit) {
  s.table.adopt(hit);
  s.computed = hit.tokens;
  s.scheduled = 0;
  s.state = Sequence::State::kRunning;
  if (!s.admitted_before) {
    s.admitted_before = true;
    s.cached_tokens = hit.tokens;
    counters_.prefix_queries += s.known();
    counters_.prefix_hits += hit.tokens;
  }
  insert_by_age(running_, s);
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

Status Scheduler::check_integrity() const {
  if (!std::is_sorted(running_.begin(), running_.end(), older) ||
      !std::is_sorted(waiting_.begin(), waiting_.end(), older))
    return internal_error("running or waiting sequences are not in order of age");
  if (slots_used() > options_.max_num_seqs)
    return internal_error(fmt::format("{} slots used of {}", slots_used(), options_.max_num_seqs));
  std::vector<uint32_t> refs(pool_.total(), 0);
  for (const Sequence* s : running_) {
    s->table.count_references(refs);
    if (s->computed > s->known() || s->computed > s->table.entries() * layout_.block_size())
      return internal_error(fmt::format("{} tokens computed of {} known, table of {} entries", s->computed,
                                        s->known(), s->table.entries()));
    if (s->scheduled > 0 && !s->table.writable(s->computed, s->scheduled))
      return internal_error(fmt::format("rows {} to {} would be written to blocks that are shared or cached",
                                        s->computed, s->computed + s->scheduled));
  }
  for (const Sequence* s : waiting_) {
    if (s->table.entries() != 0 || s->computed != 0) return internal_error("a waiting sequence owns blocks");
    if (s->leader != nullptr && std::find(running_.begin(), running_.end(), s->leader) == running_.end())
      return internal_error("a sequence waits for one that does not run");
  }
  for (uint32_t b = 0; b < pool_.total(); ++b) {
    if (refs[b] != pool_.refs(BlockId{b}))
      return internal_error(
          fmt::format("block {} counts {} owners, tables hold {}", b, pool_.refs(BlockId{b}), refs[b]));
  }
  KVASIR_RETURN_IF_ERROR(pool_.check_integrity());
  return cache_.check_integrity();
}

}  // namespace kvasir
