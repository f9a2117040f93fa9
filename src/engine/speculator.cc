#include "engine/speculator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvasir {
namespace {

// Guesses must promise this much more tokens per second than the step without them: what is predicted is
// never exact, and a wrong guess is paid for.
constexpr double kMargin = 1.03;
constexpr double kNewest = 0.05;  // weight of the newest step in how far steps are from what is predicted
constexpr double kFarthest = 2;   // one step counts as so many times the prediction at most

void follow(double& ratio, double measured_over_predicted) {
  ratio += kNewest * (std::clamp(measured_over_predicted, 1 / kFarthest, kFarthest) - ratio);
}

}  // namespace

Speculator::Speculator(const Options& options, std::vector<std::unique_ptr<Drafter>> drafters)
    : options_(options), drafters_(std::move(drafters)), acceptance_(drafters_.size()) {
  CHECK(options.most <= Draft::kMost);
  if (drafters_.empty()) return;
  for (const auto& drafter : drafters_) stats_.push_back({.name = drafter->name()});
  slots_.resize(options.max_num_seqs);
  for (Slot& slot : slots_) slot.views.resize(drafters_.size());
  for (uint32_t i = options.max_num_seqs; i-- > 0;) free_slots_.push_back(i);
  candidates_.reserve(options.max_num_seqs);
  jobs_.reserve(options.max_num_seqs);
}

bool Speculator::open(Choice& choice) {
  if (choice.draft_slot != Choice::kNoSlot) return true;
  if (free_slots_.empty()) return false;
  choice.draft_slot = free_slots_.back();
  free_slots_.pop_back();
  Slot& slot = slots_[choice.draft_slot];
  slot.choice = &choice;
  for (View& view : slot.views) view = View{};
  const uint32_t longest = static_cast<uint32_t>(choice.tokens.capacity());
  for (const auto& drafter : drafters_) drafter->open(choice.draft_slot, longest);
  return true;
}

void Speculator::close(Choice& choice) {
  if (choice.draft_slot == Choice::kNoSlot) return;
  for (const auto& drafter : drafters_) drafter->close(choice.draft_slot);
  slots_[choice.draft_slot].choice = nullptr;
  free_slots_.push_back(choice.draft_slot);
  choice.draft_slot = Choice::kNoSlot;
}

// Choices that had to make way give up their slots too: there are as many as sequences that run.
void Speculator::release_idle() {
  for (Slot& slot : slots_) {
    if (slot.choice != nullptr && slot.choice->state != Sequence::State::kRunning) close(*slot.choice);
  }
}

bool Speculator::reads_prompts(const Scheduler& scheduler) const {
  uint32_t slots = 0;
  for (const Sequence* s : scheduler.running()) {
    if (s->pending() > 1) return true;
    slots += s->slots;
  }
  return !scheduler.waiting().empty() && slots + scheduler.waiting().front()->slots <= options_.max_num_seqs;
}

// The most guesses that can become tokens of the answer: the token chosen after them needs its place too.
uint32_t Speculator::room(const Choice& choice) const {
  const uint32_t answer = choice.sampler.params().max_tokens - choice.output_tokens;
  const uint32_t context = options_.max_model_len - choice.known();
  return std::min({options_.most, std::max(answer, 1u) - 1, std::max(context, 1u) - 1});
}

void Speculator::propose(Scheduler& scheduler) {
  if (!enabled()) return;
  release_idle();
  gather(scheduler);
  ask_free();
  if (!options_.always && reads_prompts(scheduler)) {
    without_[static_cast<size_t>(NoDraft::kPrompts)] += candidates_.size();
    return;
  }
  for (Candidate& candidate : candidates_) pick_drafter(candidate);
  if (options_.always) {
    for (Candidate& candidate : candidates_) candidate.chosen = candidate.most;
  } else if (options_.costs != nullptr) {
    choose();
  }
  for (const Candidate& candidate : candidates_) apply(candidate);
}

// The sequences that may be drafted for, and the step without drafts.
void Speculator::gather(const Scheduler& scheduler) {
  candidates_.clear();
  base_ = {};
  predicted_gain_ = 1;
  step_has_drafts_ = false;
  for (Sequence* s : scheduler.running()) {
    Choice& choice = static_cast<Choice&>(*s);
    choice.draft.clear();
    if (choice.pending() != 1 || choice.score_from < choice.prompt_length) continue;
    if (options_.costs != nullptr) options_.costs->add(base_, {.rows = 1, .context = choice.computed}, 1);
    if (choice.request.request.drafters == 0)
      ++without_[static_cast<size_t>(NoDraft::kRefused)];
    else if (open(choice))
      candidates_.push_back({.slot = choice.draft_slot});
  }
}

bool Speculator::may_draft(const Slot& slot, uint32_t drafter) const {
  return (slot.choice->request.request.drafters >> drafter & 1) != 0;
}

void Speculator::add_job(Slot& slot, Draft& draft, uint32_t most) {
  const Choice& choice = *slot.choice;
  draft.clear();
  jobs_.push_back({.slot = choice.draft_slot,
                   .known = choice.tokens,
                   .most = most,
                   .sampler = &choice.sampler,
                   .output_tokens = choice.output_tokens,
                   .tables = choice.table.tables(),
                   .draft = &draft});
}

// Guesses that cost nothing are made for everybody, to be compared with what comes if not to be verified.
void Speculator::ask_free() {
  for (uint32_t d = 0; d < drafters_.size(); ++d) {
    if (!drafters_[d]->is_free()) continue;
    jobs_.clear();
    for (const Candidate& candidate : candidates_) {
      Slot& slot = slots_[candidate.slot];
      if (may_draft(slot, d)) add_job(slot, slot.views[d].guess, room(*slot.choice));
    }
    if (!jobs_.empty()) drafters_[d]->propose(jobs_);
  }
}

// Fills in the candidate's chances if this drafter guesses. One that has not guessed yet is taken to do so as
// surely as it last did.
void Speculator::expect(Candidate& candidate, uint32_t drafter) const {
  const Slot& slot = slots_[candidate.slot];
  const View& view = slot.views[drafter];
  const bool free = drafters_[drafter]->is_free();
  candidate.drafter = drafter;
  candidate.most = free ? view.guess.size : room(*slot.choice);
  const uint32_t evidence = free ? view.guess.evidence : view.last_evidence;
  double reach = 1;
  for (uint32_t place = 0; place < candidate.most; ++place) {
    reach *= view.acceptance.rate(acceptance_[drafter].rate(evidence, place));
    candidate.reach[place] = reach;
  }
}

// The drafter with which the sequence alone would gain most.
void Speculator::pick_drafter(Candidate& candidate) const {
  Candidate best = candidate;
  double best_speed = 0;
  for (uint32_t d = 0; d < drafters_.size(); ++d) {
    if (!may_draft(slots_[candidate.slot], d)) continue;
    Candidate trial = candidate;
    expect(trial, d);
    const double speed = options_.costs == nullptr ? trial.most : best_step(trial, base_, 0, 1).speed;
    if (trial.most == 0 || speed <= best_speed) continue;
    best = trial;
    best_speed = speed;
  }
  candidate = best;
}

// `load` with more rows for the candidate's guesses.
void Speculator::extend(StepLoad& load, const Candidate& candidate, uint32_t more) const {
  StepLoad now, then;
  const uint32_t context = slots_[candidate.slot].choice->computed;
  options_.costs->add(now, {.rows = 1 + candidate.chosen, .context = context}, 0);
  options_.costs->add(then, {.rows = 1 + candidate.chosen + more, .context = context}, 0);
  load.rows += more;
  load.logit_rows += more;
  load.attention += then.attention - now.attention;
  load.longest = std::max(load.longest, then.longest);
}

// Of all numbers of guesses to add for the candidate, the one with the most tokens per second, where the step
// so far gives `tokens` and spends `drafting` seconds on drafts.
Speculator::Move Speculator::best_step(const Candidate& candidate, const StepLoad& load, double drafting,
                                       double tokens) const {
  Move best;
  double gained = 0;
  for (uint32_t more = 1; candidate.chosen + more <= candidate.most; ++more) {
    gained += candidate.reach[candidate.chosen + more - 1];
    StepLoad with = load;
    extend(with, candidate, more);
    const double draft_seconds = drafting + drafters_[candidate.drafter]->seconds(1, candidate.chosen + more);
    const double speed = (tokens + gained) / (options_.costs->seconds(with) * verifying_ + draft_seconds);
    if (speed > best.speed) best = {speed, more, gained, draft_seconds};
  }
  return best;
}

// Adds guesses for as long as tokens per second grow.
void Speculator::choose() {
  if (candidates_.empty()) return;
  StepLoad load = base_;
  double drafting = 0;
  double tokens = static_cast<double>(base_.logit_rows);
  const double plain_speed = tokens / (options_.costs->seconds(base_) * plain_);
  double speed = plain_speed * kMargin;
  for (;;) {
    Candidate* winner = nullptr;
    Move best;
    for (Candidate& candidate : candidates_) {
      const Move move = best_step(candidate, load, drafting, tokens);
      if (move.speed <= best.speed) continue;
      best = move;
      winner = &candidate;
    }
    if (winner == nullptr || best.speed <= speed) break;
    extend(load, *winner, best.more);
    winner->chosen += best.more;
    drafting = best.draft_seconds;
    tokens += best.tokens;
    speed = best.speed;
    predicted_gain_ = speed / plain_speed;
  }
}

void Speculator::apply(const Candidate& candidate) {
  Slot& slot = slots_[candidate.slot];
  slot.drafter = candidate.chosen > 0 ? candidate.drafter : kNobody;
  if (candidate.chosen == 0) {
    const NoDraft reason = candidate.most == 0 ? NoDraft::kNoGuess : NoDraft::kNoGain;
    ++without_[static_cast<size_t>(reason)];
    return;
  }
  step_has_drafts_ = true;
  slot.choice->draft = slot.views[candidate.drafter].guess;
  slot.choice->draft.size = candidate.chosen;
}

void Speculator::draft(Scheduler& scheduler) {
  bool short_of = false;
  for (uint32_t d = 0; d < drafters_.size(); ++d) {
    if (drafters_[d]->is_free()) continue;
    jobs_.clear();
    for (const Candidate& candidate : candidates_) {
      Slot& slot = slots_[candidate.slot];
      if (slot.drafter != d || slot.choice->draft.size == 0) continue;
      add_job(slot, slot.views[d].guess, slot.choice->draft.size);
    }
    if (jobs_.empty()) continue;
    drafters_[d]->propose(jobs_);
    for (const DraftJob& job : jobs_) {
      CHECK(job.draft->size <= job.most);
      View& view = slots_[job.slot].views[d];
      view.last_evidence = view.guess.evidence;
      slots_[job.slot].choice->draft = view.guess;
      short_of = short_of || view.guess.size < job.most;
    }
  }
  if (short_of) scheduler.trim_drafts();
}

void Speculator::settle(Choice& choice, uint32_t new_tokens) {
  if (choice.draft_slot == Choice::kNoSlot) return;
  Slot& slot = slots_[choice.draft_slot];
  const std::span<const TokenId> came = std::span<const TokenId>(choice.tokens).last(new_tokens);
  if (slot.drafter != kNobody && choice.draft.size > 0) count(stats_[slot.drafter], choice, came);
  for (uint32_t d = 0; d < drafters_.size(); ++d) {
    View& view = slot.views[d];
    if (view.guess.size > 0 && (d == slot.drafter || !view.check.open())) view.check.start(view.guess);
    for (const TokenId token : came) view.check.compare(token, acceptance_[d], view.acceptance);
    view.guess.clear();
  }
  slot.drafter = kNobody;
  choice.draft.clear();
}

void Speculator::count(DrafterStats& stats, Choice& choice, std::span<const TokenId> came) {
  const Draft& draft = choice.draft;
  ++stats.drafts;
  stats.drafted += draft.size;
  choice.drafted += draft.size;
  uint32_t right = 0;
  while (right < std::min<size_t>(draft.size, came.size()) && draft.tokens[right] == came[right])
    ++stats.accepted_at[right++];
  stats.accepted += right;
  stats.whole += right == draft.size;
  choice.drafts_accepted += right;
}

void Speculator::observe(double predicted, double measured) {
  if (!enabled() || predicted <= 0) return;
  follow(step_has_drafts_ ? verifying_ : plain_, measured / predicted);
}

}  // namespace kvasir
