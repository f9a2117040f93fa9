#include "engine/draft_planner.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/check.h"

namespace kvasir {
namespace {

constexpr double kLeastReach = 0.02;  // rarer guesses are never worth a row

// Steps' costs are looked up for every number of guesses at first, then for every fourth, then sixteenth.
bool looked_at(uint32_t guesses, uint32_t all) {
  if (guesses <= 16 || guesses == all) return true;
  return guesses % (guesses <= 64 ? 4 : 16) == 0;
}

}  // namespace

void DraftPlanner::reserve(uint32_t sequences, uint32_t drafters) {
  most_sequences_ = sequences;
  candidates_.reserve(sequences);
  picked_.reserve(sequences);
  bids_.reserve(size_t{sequences} * drafters);
  offers_.reserve(sequences);
  order_.reserve(size_t{sequences} * Draft::kMost);
  passes_.resize(drafters);
  pass_seconds_.resize(size_t{drafters} * (sequences + 1));
}

void DraftPlanner::clear() {
  candidates_.clear();
  bids_.clear();
}

void DraftPlanner::add_candidate(uint32_t slot, uint32_t context) {
  DCHECK(candidates_.size() < most_sequences_);
  candidates_.push_back({.slot = slot, .context = context});
}

void DraftPlanner::add_bid(Candidate& candidate, const Bid& bid) {
  if (candidate.bids++ == 0) candidate.first_bid = static_cast<uint32_t>(bids_.size());
  bids_.push_back(bid);
}

// What a guess adds in attention: the same for all, what the average sequence needs for one more.
void DraftPlanner::set_up(const Step& step) {
  step_ = step;
  uint64_t context = 0;
  for (Candidate& c : candidates_) {
    context += c.context;
    c.chosen = 0;
  }
  const auto mean = static_cast<uint32_t>(context / candidates_.size());
  guess_ = step.costs->further_row(mean);
  alone_[0] = step.costs->seconds(step.load) * step.plain;
  for (uint32_t rows = 1; rows < alone_.size(); ++rows) alone_[rows] = verifying_seconds(rows);
  std::fill(pass_seconds_.begin(), pass_seconds_.end(), -1.0);
}

StepLoad DraftPlanner::with_rows(uint32_t rows) const {
  StepLoad load = step_.load;
  load.add_rows(rows, guess_);
  return load;
}

// Of the step with so many guesses: however steps came out lately, not less than without.
double DraftPlanner::verifying_seconds(uint32_t guesses) const {
  return std::max(alone_[0], step_.costs->seconds(with_rows(guesses)) * step_.verifying);
}

double DraftPlanner::pass_seconds(uint32_t drafter, uint32_t sequences) {
  if (drafters_[drafter]->is_free() || sequences == 0) return 0;
  double& seconds = pass_seconds_[size_t{drafter} * (most_sequences_ + 1) + sequences];
  if (seconds < 0) seconds = step_.drafting * drafters_[drafter]->seconds(sequences, 1);
  return seconds;
}

DraftPlanner::Alone DraftPlanner::best_alone(const Bid& bid) {
  const double pass = pass_seconds(bid.drafter, 1);
  double tokens = step_.load.logits.rows, drafting = step_.drafting * bid.once;
  Alone best;
  for (uint32_t i = 0; i < bid.most && bid.reach[i] >= kLeastReach; ++i) {
    tokens += bid.reach[i];
    drafting += pass * (1 - bid.given_up[i]);
    const double speed = tokens / (alone_[i + 1] + drafting);
    if (speed > best.speed) best = {i + 1, speed};
  }
  return best;
}

// The best bid for each sequence. False where there is none at all, or (of all bids) none that costs.
bool DraftPlanner::pick_bids(bool free_only) {
  picked_.assign(candidates_.size(), kNone);
  bool any = false;
  for (size_t i = 0; i < candidates_.size(); ++i) {
    double best = 0;
    for (uint32_t b = candidates_[i].first_bid; b < candidates_[i].first_bid + candidates_[i].bids; ++b) {
      const bool free = drafters_[bids_[b].drafter]->is_free();
      if (free_only && !free) continue;
      const double worth = best_alone(bids_[b]).speed;
      if (worth <= best) continue;
      best = worth;
      picked_[i] = b;
    }
    if (picked_[i] != kNone) any = any || free_only || !drafters_[bids_[picked_[i]].drafter]->is_free();
  }
  return any;
}

// All guesses of the picked bids, the likeliest first.
void DraftPlanner::gather_offers() {
  offers_.clear();
  order_.clear();
  const auto offer = [&](uint32_t candidate, uint32_t place) {
    const Bid& bid = bids_[picked_[candidate]];
    if (place >= bid.most || bid.reach[place] < kLeastReach) return;
    offers_.push_back({bid.reach[place], candidate, place});
    std::push_heap(offers_.begin(), offers_.end());
  };
  for (uint32_t i = 0; i < candidates_.size(); ++i) {
    if (picked_[i] != kNone) offer(i, 0);
  }
  while (!offers_.empty()) {
    std::pop_heap(offers_.begin(), offers_.end());
    const Offer next = offers_.back();
    offers_.pop_back();
    order_.push_back(next);
    offer(next.candidate, next.place + 1);
  }
}

// Whether so many passes of drafters that cost something reach this guess.
bool DraftPlanner::within(const Offer& offer, uint32_t passes) const {
  return offer.place < passes || drafters_[bids_[picked_[offer.candidate]].drafter]->is_free();
}

// Seconds of drafting that the guess adds to those counted before.
double DraftPlanner::draft_cost(const Offer& offer) {
  const Bid& bid = bids_[picked_[offer.candidate]];
  if (drafters_[bid.drafter]->is_free()) return 0;
  uint32_t& sequences = passes_[bid.drafter].sequences[offer.place];
  const double before = pass_seconds(bid.drafter, sequences);
  const double more = pass_seconds(bid.drafter, ++sequences) - before;
  return more * (1 - bid.given_up[offer.place]) + (offer.place == 0 ? step_.drafting * bid.once : 0);
}

// The best number of guesses with so many passes: the likeliest ones, in the order of all.
DraftPlanner::Outcome DraftPlanner::best_prefix(uint32_t passes) {
  for (Pass& pass : passes_) pass = {};
  Outcome best;
  double tokens = step_.load.logits.rows, drafting = 0;
  uint32_t guesses = 0;
  const auto all = static_cast<uint32_t>(order_.size());
  for (uint32_t i = 0; i < all; ++i) {
    if (!within(order_[i], passes)) continue;
    ++guesses;
    tokens += order_[i].reach;
    drafting += draft_cost(order_[i]);
    if (!looked_at(guesses, all)) continue;
    const double seconds = verifying_seconds(guesses);
    const double speed = tokens / (seconds + drafting);
    if (speed > best.speed) best = {speed, guesses};
  }
  return best;
}

void DraftPlanner::take(uint32_t guesses, uint32_t passes) {
  for (Candidate& c : candidates_) c.chosen = 0;
  for (const Offer& offer : order_) {
    if (guesses == 0) break;
    if (!within(offer, passes)) continue;
    --guesses;
    Candidate& c = candidates_[offer.candidate];
    c.drafter = bids_[picked_[offer.candidate]].drafter;
    ++c.chosen;
  }
}

// Takes what gives the most tokens per second, if that is more than `best`. How many passes there are is
// tried: an unlikely guess is worth a place in one that is made anyway, and none of its own.
void DraftPlanner::search(bool free_only, double* best) {
  constexpr uint32_t kPasses[] = {1, 2, 3, 4, 6, 8, 12, Draft::kMost};
  gather_offers();
  for (const uint32_t passes : kPasses) {
    if (free_only && passes != Draft::kMost) continue;
    const Outcome outcome = best_prefix(passes);
    if (outcome.speed <= *best) continue;
    *best = outcome.speed;
    take(outcome.guesses, passes);
  }
}

double DraftPlanner::plan(const Step& step, std::span<const std::unique_ptr<Drafter>> drafters) {
  drafters_ = drafters;
  if (candidates_.empty() || bids_.empty()) return 1;
  set_up(step);
  const double plain = step.load.logits.rows / alone_[0];
  double best = plain * step.margin;
  for (const bool free_only : {true, false}) {
    if (pick_bids(free_only)) search(free_only, &best);
  }
  const bool any =
      std::any_of(candidates_.begin(), candidates_.end(), [](const Candidate& c) { return c.chosen > 0; });
  return any ? best / plain : 1;
}

std::string DraftPlanner::explain(const Candidate& candidate) const {
  std::string text = fmt::format(
      "{} guesses; a step takes {:.2f} ms, with 1, 2, 4, 8 guesses {:.2f}, {:.2f}, {:.2f}, {:.2f}",
      candidate.chosen, 1e3 * alone_[0], 1e3 * alone_[1], 1e3 * alone_[2], 1e3 * alone_[4], 1e3 * alone_[8]);
  for (const Bid& bid : bids(candidate)) {
    text += fmt::format("; {}{}: a pass {:.2f} ms, before it {:.2f}, chances", drafters_[bid.drafter]->name(),
                        candidate.chosen > 0 && candidate.drafter == bid.drafter ? " (chosen)" : "",
                        1e3 * drafters_[bid.drafter]->seconds(1, 1), 1e3 * bid.once);
    for (uint32_t i = 0; i < std::min(bid.most, 8u); ++i) text += fmt::format(" {:.2f}", bid.reach[i]);
  }
  return text;
}

}  // namespace kvasir
