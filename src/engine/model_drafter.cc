#include "engine/model_drafter.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "engine/guess_chooser.h"

namespace kvasir {
ModelDrafter::ModelDrafter(std::shared_ptr<CausalLm> model, const KvLayout& layout, ThreadPool& pool,
                           const Options& options, DraftForecast forecast)
    : model_(std::move(model)),
      layout_(layout),
      options_(options),
      pool_(options.blocks),
      cache_(layout_, pool_, {options.prefix_caching, options.hash_seed, 64}),
      store_(layout_, options.blocks),
      batch_(*model_, pool, options.batch),
      forecast_(std::move(forecast)),
      context_(model_->config().context_length),
      slots_(options.slots) {
  work_.reserve(options.slots);
  copies_.reserve(size_t{options.slots} * layout.units());
}

DraftChances ModelDrafter::chances() const {
  DraftChances chances;
  chances.fill({0.75, 0.75});
  return chances;
}

void ModelDrafter::open(uint32_t index, uint32_t max_tokens) {
  Slot& slot = slots_[index];
  CHECK(!slot.table);
  slot.computed = slot.known = slot.last_read = 0;
  slot.max_tokens = std::min(max_tokens, context_);
}

void ModelDrafter::close(uint32_t index) {
  slots_[index].table.reset();
}

// Of the guesses read last time, those that came true are known tokens that are computed. A sequence seen for
// the first time begins with what the prefix cache holds of it.
void ModelDrafter::note_known(Slot& slot, const DraftJob& job) const {
  const auto known = static_cast<uint32_t>(job.known.size());
  for (uint32_t i = 0; i < slot.last_read && slot.known + i < known; ++i) {
    if (slot.computed != slot.known + i || job.known[slot.known + i] != slot.last.tokens[i]) break;
    ++slot.computed;
  }
  slot.last_read = 0;
  slot.known = known;
}

// Whether the model has all these tokens; one that the target alone has is the end of guessing.
bool ModelDrafter::knows(std::span<const TokenId> tokens) const {
  const auto vocab = static_cast<TokenId>(model_->config().vocab_size);
  return std::all_of(tokens.begin(), tokens.end(), [vocab](TokenId token) { return token < vocab; });
}

bool ModelDrafter::start(Work& work, uint32_t* catch_up_left) {
  DraftJob& job = *work.job;
  Slot& slot = slots_[job.slot];
  const auto known = static_cast<uint32_t>(job.known.size());
  if (!slot.table) {
    slot.table.emplace(layout_, pool_, cache_, job.cache_salt, slot.max_tokens);
    const PrefixCache::Hit hit = cache_.lookup(slot.table->salt(), job.known, std::min(known, context_) - 1);
    slot.table->adopt(hit);
    slot.computed = hit.tokens;
  }
  note_known(slot, job);
  if (known >= slot.max_tokens || !knows(job.known.subspan(slot.computed))) return false;
  job.most = std::min(job.most, slot.max_tokens - known);  // its last guess has the last place
  work.next = slot.computed;
  work.end = known;
  if (job.trial && work.end - work.next > kTrialRows) {
    work.skipped = work.end - work.next - kTrialRows;
    work.end = work.next + kTrialRows;
  }
  // The last token's row is no catching up: it is due in every step.
  const uint32_t behind = work.end - work.next - 1;
  if (!job.trial && behind > *catch_up_left) {
    work.end = work.next + *catch_up_left;
    work.catching_up = true;
  }
  *catch_up_left -= std::min(*catch_up_left, behind);
  if (work.end == work.next) return false;
  const uint32_t rows = work.end - work.next + (work.catching_up ? 0 : job.most - 1);
  if (slot.table->prepare(work.next, rows, &copies_)) return true;
  return refusals_.refuse(pool_, known);
}

void ModelDrafter::propose(std::span<DraftJob> jobs) {
  if (jobs.empty()) return;
  copies_.clear();
  mean_known_ = mean_known(jobs);
  uint32_t catch_up_left = kCatchUpRows;
  start_work(jobs, work_, [&](Work& work) { return start(work, &catch_up_left); });
  for (const BlockCopy& copy : copies_) store_.copy_block(copy.from, copy.to);
  read_known();
  read_guesses();
  for (Work& work : work_) finish(work);
}

// Rows of known tokens, of one sequence after the other, in as many passes as it takes.
void ModelDrafter::read_known() {
  for (Work& work : work_) {
    while (work.next < work.end) {
      if (batch_.room() == 0 || batch_.choices_left() == 0) run_batch();
      add_rows(work, std::min(work.end - work.next, batch_.room()));
    }
    if (!work.catching_up) batch_.choose_for(*work.job);
  }
  run_batch();
}

void ModelDrafter::add_rows(Work& work, uint32_t rows) {
  const DraftJob& job = *work.job;
  batch_.add(slots_[job.slot].table->tables(), work.next,
             job.known.subspan(size_t{work.next} + work.skipped, rows));
  work.next += rows;
}

// One row per sequence and pass: the newest guess, for the next one.
void ModelDrafter::read_guesses() {
  for (bool any = true; any;) {
    any = false;
    for (Work& work : work_) {
      DraftJob& job = *work.job;
      const uint32_t read = work.next - work.end;
      if (work.catching_up || job.draft->size != read + 1 || !more_guesses_wanted(job, options_.end_tokens))
        continue;
      if (batch_.room() == 0 || batch_.choices_left() == 0) run_batch();
      batch_.add(slots_[job.slot].table->tables(), work.next, {&job.draft->tokens[read], 1});
      batch_.choose_for(job);
      ++work.next;
      any = true;
    }
    run_batch();
  }
}

void ModelDrafter::run_batch() {
  batch_.give_guesses(store_, forecast_, mean_known_);
}

// What was read of known tokens stays, and enters the prefix cache; of guesses it stays until it is known
// whether they came true. What a trial read stands at the wrong positions.
void ModelDrafter::finish(Work& work) {
  const DraftJob& job = *work.job;
  Slot& slot = slots_[job.slot];
  if (work.skipped > 0) {
    work.job->draft->from_less = true;
    slot.table->truncate_to(slot.computed);
    return;
  }
  slot.computed = work.end;
  slot.table->commit(job.known, slot.computed);
  if (work.catching_up) return;
  slot.last = *job.draft;
  slot.last_read = work.next - work.end;
}

double ModelDrafter::seconds(uint32_t sequences, uint32_t tokens) const {
  return tokens * forecast_.seconds(sequences, 1, mean_known_);
}

double ModelDrafter::catch_up_seconds(uint32_t slot, uint32_t known, bool trial) const {
  const uint32_t computed = std::min(slots_[slot].computed + slots_[slot].last_read, known);
  if (known - computed <= 1) return 0;
  const uint32_t rows = trial ? std::min(known - computed, kTrialRows) - 1 : known - computed - 1;
  if (rows == 0) return 0;
  const uint32_t each = std::min(rows, kCatchUpRows);
  return forecast_.seconds(1, each, computed) * rows / each - forecast_.seconds(1, 1, computed);
}

}  // namespace kvasir
