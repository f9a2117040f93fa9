#include <algorithm>

#include "base/check.h"
#include "engine/speculator.h"

namespace kvasir {

// A further guess is worth its pass and row while the chance that those before it are right, times its own,
// is more than the tokens that the step gives in that time. Trials see the whole draft.
const DraftStop* Speculator::stop_for(Slot& slot, uint32_t drafter) {
  if (options_.always || slot.trial || options_.costs == nullptr) return nullptr;
  const View& view = slot.views[drafter];
  const Acceptance& all = acceptance_[drafter];
  for (uint32_t grade = 0; grade < Draft::kGrades; ++grade)
    slot.stop.right[grade] = view.acceptance.rate(all.grade_rate(grade));
  const double next = view.acceptance.rate(all.rate(view.last_evidence, 1));
  const double seconds = drafting_ * drafters_[drafter]->seconds(1, 1) + planner_.rows_seconds(1);
  slot.stop.least = seconds * planner_.plain_speed() * predicted_gain_ / next;
  return &slot.stop;
}

// Of the passes that these drafts took.
double Speculator::predicted_drafting(uint32_t drafter, std::span<const DraftJob> jobs) const {
  double seconds = 0;
  for (uint32_t pass = 0; pass < Draft::kMost; ++pass) {
    const auto wanted = std::ranges::count_if(
        jobs, [pass](const DraftJob& job) { return std::max(job.draft->size, 1u) > pass; });
    if (wanted == 0) break;
    seconds += drafters_[drafter]->seconds(static_cast<uint32_t>(wanted), 1);
  }
  return seconds;
}

void Speculator::draft(Scheduler& scheduler) {
  if (!enabled()) return;
  const double start = options_.now();
  bool short_of = false;
  double predicted = 0;
  for (uint32_t d = 0; d < drafters_.size(); ++d) {
    if (drafters_[d]->is_free()) continue;
    jobs_.clear();
    for (const DraftPlanner::Candidate& candidate : planner_.candidates()) {
      Slot& slot = slots_[candidate.slot];
      if (slot.drafter != d || slot.choice->draft.size == 0) continue;
      add_job(slot, slot.views[d].guess, slot.choice->draft.size);
      jobs_.back().stop = stop_for(slot, d);
    }
    if (jobs_.empty()) continue;
    for (const DraftJob& job : jobs_)
      predicted +=
          drafters_[d]->catch_up_seconds(job.slot, static_cast<uint32_t>(job.known.size()), job.trial);
    drafters_[d]->propose(jobs_);
    predicted += predicted_drafting(d, jobs_);
    for (const DraftJob& job : jobs_) {
      View& view = slots_[job.slot].views[d];
      Draft& planned = slots_[job.slot].choice->draft;
      CHECK(view.guess.size <= planned.size);
      if (!view.guess.from_less) view.last_evidence = view.guess.evidence;
      short_of = short_of || view.guess.size < planned.size;
      if (view.guess.size == 0) {
        ++stats_[d].off[static_cast<size_t>(NoDraft::kNoGuess)];
        ++without_[static_cast<size_t>(NoDraft::kNoGuess)];
      }
      planned = view.guess;
    }
  }
  drafting_seconds_ = options_.now() - start;
  if (predicted > 0) follow(drafting_, drafting_seconds_ / predicted);
  if (!short_of) return;
  scheduler.trim_drafts();
  step_has_drafts_ =
      std::ranges::any_of(scheduler.running(), [](const Sequence* s) { return s->draft.size > 0; });
}

}  // namespace kvasir
