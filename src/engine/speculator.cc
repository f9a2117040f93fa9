#include "engine/speculator.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "engine/clock.h"

namespace kvasir {
namespace {

// Guesses must promise this much more tokens per second than the step without them: what is predicted is
// never exact, and a wrong guess is paid for.
constexpr double kMargin = 1.02;
// What was seen of steps with drafts is forgotten by so much with each step without: that they were slow once
// is no reason never to look again.
constexpr double kForgotten = 1.0 / 256;

// How far steps without drafts are from the prediction is not seen while there are none; the prediction
// follows the machine by itself.
constexpr double kStale = 1.0 / 64;
// Steps with drafts are taken to be cheaper than predicted by so much at most: on a machine that others use
// too they may seem so for a while, and nothing would bring that to light.
constexpr double kLeastVerifying = 0.85;

// What a drafter has to catch up with is shared by the guesses of so many tokens to come.
constexpr double kCatchUpHorizon = 64;

}  // namespace

Speculator::Speculator(const Options& options, std::vector<std::unique_ptr<Drafter>> drafters, KvStore& kv)
    : options_(options), drafters_(std::move(drafters)), from_less_(drafters_.size()) {
  CHECK(options.most <= Draft::kMost);
  if (!options_.now) options_.now = monotonic_seconds;
  if (drafters_.empty()) return;
  for (const auto& drafter : drafters_) {
    stats_.push_back({.name = drafter->name()});
    acceptance_.emplace_back(drafter->chances());
    drafter->attach(kv);
  }
  slots_.resize(options.max_num_seqs);
  for (Slot& slot : slots_) slot.views.resize(drafters_.size());
  for (uint32_t i = options.max_num_seqs; i-- > 0;) free_slots_.push_back(i);
  for (uint32_t d = 0; d < drafters_.size(); ++d) watch_.add(*drafters_[d], d);
  watch_.reserve(options.max_rows, options.hidden_dim);
  planner_.reserve(options.max_num_seqs, static_cast<uint32_t>(drafters_.size()));
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
  const Sequence* next = scheduler.queue().next();
  return next != nullptr && slots + next->slots <= options_.max_num_seqs;
}

// Tokens that the answer may still get.
uint32_t Speculator::answer_left(const Choice& choice) const {
  return std::min(choice.sampler.params().max_tokens - choice.output_tokens,
                  options_.max_model_len - choice.known());
}

// The most guesses that can become tokens of the answer: the token chosen after them needs its place too.
uint32_t Speculator::room(const Choice& choice) const {
  return std::min(options_.most, std::max(answer_left(choice), 1u) - 1);
}

void Speculator::propose(Scheduler& scheduler) {
  drafting_seconds_ = 0;
  if (!enabled()) return;
  release_idle();
  gather(scheduler);
  ask_free();
  if (!options_.always && reads_prompts(scheduler)) {
    const auto reason = static_cast<size_t>(NoDraft::kPrompts);
    without_[reason] += planner_.candidates().size();
    for (DrafterStats& stats : stats_) stats.off[reason] += planner_.candidates().size();
    return;
  }
  gather_bids();
  if (options_.always)
    choose_most();
  else if (options_.costs != nullptr)
    choose();
  for (const DraftPlanner::Candidate& candidate : planner_.candidates()) apply(candidate);
  if (step_has_drafts_ && options_.costs != nullptr && !reads_prompts(scheduler))
    plain_seconds_ = plain_ * options_.costs->seconds(base_);
}

// The sequences that may be drafted for, and the step without drafts.
void Speculator::gather(const Scheduler& scheduler) {
  planner_.clear();
  base_ = {};
  predicted_gain_ = 1;
  step_has_drafts_ = false;
  plain_seconds_ = 0;
  for (Sequence* s : scheduler.running()) {
    Choice& choice = static_cast<Choice&>(*s);
    choice.draft.clear();
    if (choice.pending() != 1 || choice.score_from < choice.prompt_length) continue;
    if (options_.costs != nullptr) options_.costs->add(base_, {.rows = 1, .context = choice.computed}, 1);
    if (choice.request.request.drafters == 0) {
      ++without_[static_cast<size_t>(NoDraft::kRefused)];
      for (DrafterStats& stats : stats_) ++stats.off[static_cast<size_t>(NoDraft::kRefused)];
    } else if (open(choice)) {
      planner_.add_candidate(choice.draft_slot, choice.computed);
    }
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
                   .cache_salt = choice.request.request.cache_salt,
                   .trial = slot.trial,
                   .draft = &draft});
}

// Guesses that cost nothing are made for everybody, to be compared with what comes if not to be verified.
void Speculator::ask_free() {
  for (uint32_t d = 0; d < drafters_.size(); ++d) {
    if (!drafters_[d]->is_free()) continue;
    jobs_.clear();
    for (const DraftPlanner::Candidate& candidate : planner_.candidates()) {
      Slot& slot = slots_[candidate.slot];
      if (may_draft(slot, d)) add_job(slot, slot.views[d].guess, room(*slot.choice));
    }
    if (!jobs_.empty()) drafters_[d]->propose(jobs_);
  }
}

// What a drafter may do for a sequence. One that has not guessed yet is taken to do so as surely as it last
// did. With `hope` chances are higher by so many standard deviations.
DraftPlanner::Bid Speculator::bid_of(const Slot& slot, uint32_t drafter, double hope) const {
  const View& view = slot.views[drafter];
  const bool free = drafters_[drafter]->is_free();
  const uint32_t evidence = free ? view.guess.evidence : view.last_evidence;
  const uint32_t most = std::min(room(*slot.choice), drafters_[drafter]->most());
  DraftPlanner::Bid bid{.drafter = drafter, .most = free ? view.guess.size : most};
  const double off = hope == 0 ? 0 : hope * view.acceptance.deviation(view.idle);
  double reach = 1, made = 1;
  for (uint32_t place = 0; place < bid.most; ++place) {
    const double goes_on = place == 0 ? 1 : acceptance_[drafter].going_on(place);
    made *= goes_on;
    bid.given_up[place] = 1 - made;
    const double hopes = hope > 0 ? hope : free || place == 0 ? 0 : kHopeOfPlaces;
    reach *= goes_on * view.acceptance.rate(acceptance_[drafter].rate(evidence, place, hopes), off);
    bid.reach[place] = reach;
  }
  if (!free) {
    const double seconds =
        drafters_[drafter]->catch_up_seconds(slot.choice->draft_slot, slot.choice->known(), false);
    bid.once = seconds / std::min<double>(kCatchUpHorizon, bid.most == 0 ? 1 : answer_left(*slot.choice));
  }
  return bid;
}

void Speculator::gather_bids() {
  for (DraftPlanner::Candidate& candidate : planner_.candidates()) {
    const Slot& slot = slots_[candidate.slot];
    for (uint32_t d = 0; d < drafters_.size(); ++d) {
      if (!may_draft(slot, d)) continue;
      const DraftPlanner::Bid bid = bid_of(slot, d, 0);
      if (bid.most > 0) planner_.add_bid(candidate, bid);
    }
  }
}

// All guesses of the drafter of whom most tokens are to be expected.
void Speculator::choose_most() {
  for (DraftPlanner::Candidate& candidate : planner_.candidates()) {
    double best = 0;
    for (const DraftPlanner::Bid& bid : planner_.bids(candidate)) {
      double tokens = 0;
      for (uint32_t i = 0; i < bid.most; ++i) tokens += bid.reach[i];
      if (tokens <= best) continue;
      best = tokens;
      candidate.drafter = bid.drafter;
      candidate.chosen = bid.most;
    }
  }
}

void Speculator::choose() {
  predicted_gain_ = planner_.plan({.costs = options_.costs,
                                   .load = base_,
                                   .plain = plain_,
                                   .verifying = plain_ * verifying_,
                                   .drafting = drafting_,
                                   .margin = kMargin},
                                  drafters_);
  for (DraftPlanner::Candidate& candidate : planner_.candidates()) {
    Slot& slot = slots_[candidate.slot];
    if (spdlog::should_log(spdlog::level::debug)) {
      spdlog::debug("request {}: {}", static_cast<uint64_t>(slot.choice->request.id),
                    planner_.explain(candidate));
    }
    if (options_.never) candidate.chosen = 0;
    slot.trial = candidate.chosen == 0 && !options_.never && try_drafter(candidate);
  }
}

// Whether a drafter that costs something and was not chosen is to be tried, and who.
bool Speculator::try_drafter(DraftPlanner::Candidate& candidate) {
  Slot& slot = slots_[candidate.slot];
  for (const DraftPlanner::Bid& bid : planner_.bids(candidate)) {
    if (drafters_[bid.drafter]->is_free()) continue;
    ++slot.views[bid.drafter].idle;
    const double hoped = planner_.best_alone(bid_of(slot, bid.drafter, kHope)).speed;
    const uint32_t guesses = std::clamp(planner_.best_alone(bid).guesses, 1u, kTrialTokens);
    if (!pay_trial(slot, bid, guesses, hoped > planner_.plain_speed())) continue;
    candidate.drafter = bid.drafter;
    candidate.chosen = guesses;
    return true;
  }
  return false;
}

// Pays for a trial, if what it is expected to lose may be lost.
bool Speculator::pay_trial(Slot& slot, const DraftPlanner::Bid& bid, uint32_t guesses, bool hopeful) {
  const Choice& choice = *slot.choice;
  const Drafter& drafter = *drafters_[bid.drafter];
  const double price = drafting_ * (drafter.seconds(1, guesses) +
                                    drafter.catch_up_seconds(choice.draft_slot, choice.known(), true)) +
                       planner_.rows_seconds(guesses);
  slot.token_price = 1 / planner_.plain_speed();
  double tokens = 0;
  for (uint32_t i = 0; i < guesses; ++i) tokens += bid.reach[i];
  const double debt = hopeful ? kTrialDebt * planner_.plain_seconds() : 0;
  if (trial_seconds_ + debt < price - tokens * slot.token_price) return false;
  trial_seconds_ -= price;
  return true;
}

void Speculator::apply(const DraftPlanner::Candidate& candidate) {
  Slot& slot = slots_[candidate.slot];
  explain(candidate);
  slot.drafter = candidate.chosen > 0 ? candidate.drafter : kNobody;
  if (candidate.chosen == 0) return;
  step_has_drafts_ = true;
  View& view = slot.views[candidate.drafter];
  view.idle = 0;
  slot.choice->draft = view.guess;
  slot.choice->draft.size = candidate.chosen;
}

// Counts, for the sequence and for each drafter, why there are no guesses.
void Speculator::explain(const DraftPlanner::Candidate& candidate) {
  const Slot& slot = slots_[candidate.slot];
  const auto bids = planner_.bids(candidate);
  for (uint32_t d = 0; d < drafters_.size(); ++d) {
    if (candidate.chosen > 0 && candidate.drafter == d) continue;
    NoDraft reason = candidate.chosen > 0 ? NoDraft::kOutbid : NoDraft::kNoGain;
    if (std::none_of(bids.begin(), bids.end(), [d](const auto& bid) { return bid.drafter == d; }))
      reason = may_draft(slot, d) ? NoDraft::kNoGuess : NoDraft::kRefused;
    ++stats_[d].off[static_cast<size_t>(reason)];
  }
  if (candidate.chosen == 0)
    ++without_[static_cast<size_t>(bids.empty() ? NoDraft::kNoGuess : NoDraft::kNoGain)];
}

void Speculator::follow(double& ratio, double measured_over_predicted) {
  constexpr double kNewest = 0.05;  // weight of the newest step in how far steps are from what is predicted
  constexpr double kFarthest = 2;   // one step counts as so many times the prediction at most
  ratio += kNewest * (std::clamp(measured_over_predicted, 1 / kFarthest, kFarthest) - ratio);
}

// Drafters see a sequence from its prompt on, as far as they may guess for it.
HiddenTap Speculator::watch(const SchedulerOutput& plan) {
  if (!watch_.any()) return {};
  watch_.begin();
  for (const SchedulerOutput::Item& item : plan.items) {
    Choice& choice = static_cast<Choice&>(*item.sequence);
    const bool wanted = (choice.request.request.drafters & watch_.drafters()) != 0;
    watch_.add_rows(wanted && open(choice) ? choice.draft_slot : HiddenWatch::kNobody, choice.computed,
                    item.rows);
  }
  return watch_.tap();
}

void Speculator::show() {
  if (!watch_.any()) return;
  for (const HiddenWatch::Seen& seen : watch_.seen()) {
    const Slot& slot = slots_[seen.slot];
    for (const HiddenWatch::Watcher& watcher : watch_.watchers()) {
      if (may_draft(slot, watcher.index)) watcher.drafter->see(seen.slot, watch_.rows_for(watcher, seen));
    }
  }
}

// The step's time, and what its tokens would have taken without drafts, are shared by those who decode.
void Speculator::count_time(Choice& choice, uint32_t new_tokens) {
  if (plain_seconds_ == 0 || base_.rows == 0) return;
  const double saved = (plain_seconds_ * new_tokens - step_seconds_) / base_.rows;
  choice.drafting.saved_seconds += saved;
  saved_seconds_ += saved;
}

void Speculator::settle(Choice& choice, uint32_t new_tokens) {
  count_time(choice, new_tokens);
  if (choice.draft_slot == Choice::kNoSlot) return;
  Slot& slot = slots_[choice.draft_slot];
  const std::span<const TokenId> came = std::span<const TokenId>(choice.tokens).last(new_tokens);
  if (slot.drafter != kNobody && choice.draft.size > 0) {
    count(stats_[slot.drafter], choice, came);
    if (slot.trial && !came.empty()) trial_seconds_ += slot.token_price * (new_tokens - 1);
  }
  for (uint32_t d = 0; d < drafters_.size(); ++d) {
    View& view = slot.views[d];
    if (view.guess.size > 0 && (d == slot.drafter || !view.check.open())) {
      view.check.start(view.guess);
      view.checks_less = view.guess.from_less;
    }
    Acceptance& all = view.checks_less ? from_less_[d] : acceptance_[d];
    for (const TokenId token : came) view.check.compare(token, all, view.acceptance);
    view.guess.clear();
  }
  slot.drafter = kNobody;
  slot.trial = false;
  choice.draft.clear();
}

void Speculator::count(DrafterStats& stats, Choice& choice, std::span<const TokenId> came) {
  const Draft& draft = choice.draft;
  uint32_t right = 0;
  while (right < std::min<size_t>(draft.size, came.size()) && draft.tokens[right] == came[right]) {
    ++stats.accepted_at[right];
    ++choice.drafting.accepted_at[right++];
  }
  ++stats.drafts;
  stats.drafted += draft.size;
  stats.accepted += right;
  stats.whole += right == draft.size;
  ++choice.drafting.drafts;
  choice.drafting.drafted += draft.size;
  choice.drafting.accepted += right;
}

void Speculator::observe(double predicted, double measured) {
  if (!enabled()) return;
  // What is saved up does not let trials come in a row.
  trial_seconds_ = std::min(kTrialDebt * measured, trial_seconds_ + kTrialShare * measured);
  if (predicted <= 0) return;
  if (step_has_drafts_) {
    follow(verifying_, measured / predicted / plain_);
    verifying_ = std::max(verifying_, kLeastVerifying);
    plain_ += kStale * (1 - plain_);
  } else {
    follow(plain_, measured / predicted);
    verifying_ += kForgotten * (1 - verifying_);
  }
}

}  // namespace kvasir
