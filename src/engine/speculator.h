#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "decoding/acceptance.h"
#include "decoding/draft_stats.h"
#include "decoding/drafter.h"
#include "engine/choice.h"
#include "engine/scheduler.h"

namespace kvasir {

// Chooses, for each sequence and each step, who drafts for it and how many tokens (speculative decoding), so
// that the tokens to expect per second are the most, and learns from what came of it.
//
// It starts from the step without drafts and adds guesses as long as the tokens that they are expected to
// give per second that they take are more than the step's own (SmartSpec, arXiv 2406.14066, with the engine's
// own model of its steps): chances are those of Acceptance, as the sequence has borne them out; costs those
// of StepCosts, corrected by how steps with and without drafts have differed from them. A step that is bound
// by arithmetic pays for each row in full, so that no guess is worth its row there: speculation is off under
// load by that same rule. While prompts are read it is off too.
//
// Drafters that cost nothing are asked for every sequence in every step; guesses that are not verified are
// compared with the tokens as they come, so that the chances are known before a single row was spent.
class Speculator {
 public:
  struct Options {
    uint32_t max_num_seqs = 0;
    uint32_t max_model_len = 0;
    const StepCosts* costs =
        nullptr;                   // null: nothing can be predicted, and nothing is drafted but by `always`
    uint32_t most = Draft::kMost;  // guesses per sequence and step
    bool always = false;           // draft as many as there are, whatever they cost
  };
  Speculator(const Options& options, std::vector<std::unique_ptr<Drafter>> drafters);

  bool enabled() const { return !drafters_.empty(); }
  std::span<const std::unique_ptr<Drafter>> drafters() const { return drafters_; }

  // Before a step is planned: puts into the running choices' drafts what is to be verified.
  void propose(Scheduler& scheduler);
  // After it was planned: has the drafters that cost something fill the room that the plan gave them.
  void draft(Scheduler& scheduler);
  // A choice that was given a row (and perhaps more for its draft) now has these new tokens at its end.
  void settle(Choice& choice, uint32_t new_tokens);
  // What a step that carried drafts, or none, was predicted to take and took.
  void observe(double predicted, double measured);
  // The choice has ended.
  void close(Choice& choice);

  std::span<const DrafterStats> stats() const { return stats_; }
  const std::array<uint64_t, kNoDrafts>& without_draft() const { return without_; }
  // Tokens per second to expect of the last step with its drafts over those without; 1 where it had none.
  double predicted_gain() const { return predicted_gain_; }

 private:
  static constexpr uint32_t kNobody = UINT32_MAX;
  // One drafter's view of one sequence.
  struct View {
    Draft guess;  // of this step
    uint32_t last_evidence = 0;
    DraftCheck check;
    SequenceAcceptance acceptance;
  };
  struct Slot {
    Choice* choice = nullptr;
    uint32_t drafter = kNobody;  // whose guesses the step verifies
    std::vector<View> views;     // of each drafter
  };
  // A sequence that may be drafted for in this step.
  struct Candidate {
    uint32_t slot = 0;
    uint32_t drafter = kNobody;
    uint32_t most = 0, chosen = 0;
    std::array<double, Draft::kMost> reach{};  // chance that the guesses up to here are all right
  };

  struct Move {
    double speed = 0;  // tokens per second of the step with it
    uint32_t more = 0;
    double tokens = 0;         // that it is expected to give
    double draft_seconds = 0;  // of all drafters then
  };

  bool open(Choice& choice);
  void release_idle();
  bool reads_prompts(const Scheduler& scheduler) const;
  uint32_t room(const Choice& choice) const;
  bool may_draft(const Slot& slot, uint32_t drafter) const;
  void gather(const Scheduler& scheduler);
  void add_job(Slot& slot, Draft& draft, uint32_t most);
  void ask_free();
  void expect(Candidate& candidate, uint32_t drafter) const;
  void pick_drafter(Candidate& candidate) const;
  void extend(StepLoad& load, const Candidate& candidate, uint32_t more) const;
  Move best_step(const Candidate& candidate, const StepLoad& load, double drafting, double tokens) const;
  void choose();
  void apply(const Candidate& candidate);
  static void count(DrafterStats& stats, Choice& choice, std::span<const TokenId> came);

  Options options_;
  std::vector<std::unique_ptr<Drafter>> drafters_;
  std::vector<Acceptance> acceptance_;  // of each drafter
  std::vector<DrafterStats> stats_;
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<Candidate> candidates_;
  std::vector<DraftJob> jobs_;
  StepLoad base_;  // of the step without drafts
  std::array<uint64_t, kNoDrafts> without_{};
  double predicted_gain_ = 1;
  bool step_has_drafts_ = false;
  double plain_ = 1, verifying_ = 1;  // measured over predicted, of steps without and with drafts
};

}  // namespace kvasir
