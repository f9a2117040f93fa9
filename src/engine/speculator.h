#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "decoding/acceptance.h"
#include "decoding/draft_stats.h"
#include "decoding/drafter.h"
#include "engine/choice.h"
#include "engine/draft_planner.h"
#include "engine/hidden_watch.h"
#include "engine/scheduler.h"

namespace kvasir {

// Chooses, for each sequence and each step, who drafts for it and how many tokens (speculative decoding), so
// that the tokens to expect per second are the most (DraftPlanner), and learns from what came of it: chances
// are those of Acceptance, as the sequence has borne them out; costs those of StepCosts, corrected by how
// steps with and without drafts have differed from them, and what drafters say of their own. A step that is
// bound by arithmetic pays for each row in full, so that no guess is worth its row there: speculation is off
// under load by that same rule. While prompts are read it is off too.
//
// Drafters that cost nothing are asked for every sequence in every step; guesses that are not verified are
// compared with the tokens as they come, so that the chances are known before a single row was spent.
//
// Of drafters that cost something nothing is learnt while they are not asked. So a sequence that nobody
// drafts for tries them, with as many guesses, one or two, as lose least by what is known. There is an
// account of the time that trials lose: they pay what they take, the tokens that they gain are paid back at
// the price of a step without guesses, and kTrialShare of the time of all steps is added. A trial may lose
// what the account has; and kTrialDebt steps more where drafting would pay if the sequence were easier to
// guess than it seems, by kHope standard deviations of what is known of it and of the drafter. So trials near
// where drafting begins to pay, which hardly lose anything, go on, and hopeless ones take kTrialShare at
// most.
class Speculator {
 public:
  struct Options {
    uint32_t max_num_seqs = 0;
    uint32_t max_model_len = 0;
    const StepCosts* costs =
        nullptr;                   // null: nothing can be predicted, and nothing is drafted but by `always`
    uint32_t max_rows = 0;         // of a step
    uint32_t hidden_dim = 0;       // of the target
    uint32_t most = Draft::kMost;  // guesses per sequence and step
    bool always = false;           // draft as many as there are, whatever they cost
    bool never = false;            // learn and plan, but verify nothing
    std::function<double()> now = {};  // seconds; none: monotonic_seconds()
  };
  static constexpr uint32_t kTrialTokens = 2;
  static constexpr double kTrialShare = 0.01, kTrialDebt = 2, kHope = 2;
  // Of a drafter that costs something places far back are learnt of only where guesses are made there: their
  // chances are taken to be higher by so many standard deviations of what is known.
  static constexpr double kHopeOfPlaces = 0.5;

  // `kv`: where the target keeps K and V.
  Speculator(const Options& options, std::vector<std::unique_ptr<Drafter>> drafters, KvStore& kv);

  bool enabled() const { return !drafters_.empty(); }
  std::span<const std::unique_ptr<Drafter>> drafters() const { return drafters_; }

  // Before a step is planned: puts into the running choices' drafts what is to be verified.
  void propose(Scheduler& scheduler);
  // After it was planned: has the drafters that cost something fill the room that the plan gave them.
  void draft(Scheduler& scheduler);
  // Hidden states that the plan's pass is to hand out, for drafters that want them; once it has run, show()
  // gives them to the drafters, before anything is committed.
  HiddenTap watch(const SchedulerOutput& plan);
  void show();
  // What the step has taken when settle() is about to be called.
  void took(double seconds) { step_seconds_ = seconds; }
  // A choice that was given a row (and perhaps more for its draft) now has these new tokens at its end.
  void settle(Choice& choice, uint32_t new_tokens);
  // What a step that carried drafts, or none, was predicted to take and took, drafting itself left out.
  void observe(double predicted, double measured);
  // Seconds that drafters which cost something took in this step.
  double drafting_seconds() const { return drafting_seconds_; }
  // The choice has ended.
  void close(Choice& choice);

  std::span<const DrafterStats> stats() const { return stats_; }
  const std::array<uint64_t, kNoDrafts>& without_draft() const { return without_; }
  // Tokens per second to expect of the last step with its drafts over those without; 1 where it had none.
  double predicted_gain() const { return predicted_gain_; }
  // Of all answers (DraftCounts).
  double saved_seconds() const { return saved_seconds_; }

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;
  // One drafter's view of one sequence.
  struct View {
    Draft guess;  // of this step
    uint32_t last_evidence = 0;
    uint32_t idle = 0;  // steps since it was last asked
    DraftCheck check;
    bool checks_less = false;  // the draft that is being compared was guessed from less
    SequenceAcceptance acceptance;
  };
  struct Slot {
    Choice* choice = nullptr;
    uint32_t drafter = kNobody;  // whose guesses the step verifies
    bool trial = false;
    double token_price = 0;  // of a trial's right guesses, seconds
    DraftStop stop;
    std::vector<View> views;  // of each drafter
  };
  bool open(Choice& choice);
  void release_idle();
  bool reads_prompts(const Scheduler& scheduler) const;
  uint32_t answer_left(const Choice& choice) const;
  uint32_t room(const Choice& choice) const;
  bool may_draft(const Slot& slot, uint32_t drafter) const;
  void gather(const Scheduler& scheduler);
  void add_job(Slot& slot, Draft& draft, uint32_t most);
  void ask_free();
  const DraftStop* stop_for(Slot& slot, uint32_t drafter);
  double predicted_drafting(uint32_t drafter, std::span<const DraftJob> jobs) const;
  DraftPlanner::Bid bid_of(const Slot& slot, uint32_t drafter, double hope) const;
  void gather_bids();
  void choose_most();
  void choose();
  bool try_drafter(DraftPlanner::Candidate& candidate);
  bool pay_trial(Slot& slot, const DraftPlanner::Bid& bid, uint32_t guesses, bool hopeful);
  void apply(const DraftPlanner::Candidate& candidate);
  void explain(const DraftPlanner::Candidate& candidate);
  static void follow(double& ratio, double measured_over_predicted);
  static void count(DrafterStats& stats, Choice& choice, std::span<const TokenId> came);
  void count_time(Choice& choice, uint32_t new_tokens);

  Options options_;
  std::vector<std::unique_ptr<Drafter>> drafters_;
  std::vector<Acceptance> acceptance_;  // of each drafter
  std::vector<Acceptance> from_less_;   // of its guesses from less
  std::vector<DrafterStats> stats_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  HiddenWatch watch_;
  DraftPlanner planner_;
  std::vector<DraftJob> jobs_;
  StepLoad base_;             // of the step without drafts
  double trial_seconds_ = 0;  // the account of trials
  double drafting_seconds_ = 0;
  std::array<uint64_t, kNoDrafts> without_{};
  double predicted_gain_ = 1;
  bool step_has_drafts_ = false;
  double plain_seconds_ = 0;  // what the step would take without drafts; 0: it has none, or reads prompts too
  double step_seconds_ = 0;   // what it took
  double saved_seconds_ = 0;
  // Measured over predicted: of steps without drafts, and by how much more that is with drafts.
  double plain_ = 1, verifying_ = 1;
  double drafting_ = 1;  // the same of drafting
};

}  // namespace kvasir
