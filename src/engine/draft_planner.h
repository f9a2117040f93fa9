#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "decoding/drafter.h"
#include "perf/perf_model.h"

namespace kvasir {

// Chooses how many guesses of which drafter each sequence of a step gets, so that the tokens to expect per
// second are the most (SmartSpec, arXiv 2406.14066, with a sum over drafting passes in place of one cost).
//
// A step with guesses takes what StepCosts says of its rows, and before that what drafting takes: drafters
// make the first guess of all their sequences together, then the second of those that want two, and so on, so
// that the passes of all are paid for, each by how many sequences it has. Guesses are taken in the order of
// the chance that they are reached and right, of all sequences together: rows cost about the same for whom
// they are. Of all numbers of guesses from the front of that order the best one counts; not the first that is
// better than the next, for rows cost by steps. That is tried for several numbers of passes, of whose guesses
// alone the order is then made; and drafters that cost something are weighed against the free ones alone.
// Allocates nothing after reserve().
class DraftPlanner {
 public:
  // What a drafter offers a sequence.
  struct Bid {
    uint32_t drafter = 0;
    uint32_t most = 0;  // guesses
    double once = 0;    // seconds beside those of its passes, with the first guess
    // Chance that the guesses up to here are all made and right; falls. And that the drafter has given up
    // before the pass for a guess.
    std::array<double, Draft::kMost> reach{}, given_up{};
  };
  // A sequence, its bids, and what was chosen for it.
  struct Candidate {
    uint32_t slot = 0;
    uint32_t context = 0;
    uint32_t first_bid = 0, bids = 0;
    uint32_t drafter = 0, chosen = 0;  // by plan(); 0 guesses: none is worth it
  };
  // The step, and how far steps have lately been from what StepCosts says, without and with guesses.
  struct Step {
    const StepCosts* costs = nullptr;
    StepLoad load;  // without guesses
    double plain = 1, verifying = 1;
    double drafting = 1;  // the same of drafters' passes
    double margin = 1;    // guesses must promise so many times the tokens per second
  };

  void reserve(uint32_t sequences, uint32_t drafters);
  void clear();
  void add_candidate(uint32_t slot, uint32_t context);
  // Candidate after candidate, in their order.
  void add_bid(Candidate& candidate, const Bid& bid);

  // Fills in the candidates' drafter and chosen. Returns the tokens per second to expect over those without
  // guesses; 1 where there are none.
  double plan(const Step& step, std::span<const std::unique_ptr<Drafter>> drafters);

  // Of the last plan(), which had bids: the best number of this bid's guesses, if the step has no others.
  struct Alone {
    uint32_t guesses = 0;
    double speed = 0;  // tokens per second
  };
  Alone best_alone(const Bid& bid);
  // Of the last plan(), which had bids: the step's seconds and tokens per second without guesses; and what so
  // many guesses of one sequence add to the step itself, seconds.
  double plain_seconds() const { return alone_[0]; }
  double plain_speed() const { return step_.load.logits.rows / alone_[0]; }
  double rows_seconds(uint32_t guesses) const { return std::max(0.0, alone_[guesses] - alone_[0]); }

  // Of the last plan(), for logs: what was chosen for a candidate, and what it was weighed by.
  std::string explain(const Candidate& candidate) const;

  std::span<Candidate> candidates() { return candidates_; }
  std::span<const Bid> bids(const Candidate& c) const { return {bids_.data() + c.first_bid, c.bids}; }

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Pass {
    std::array<uint32_t, Draft::kMost> sequences{};  // of each pass of a drafter in the plan being made
  };
  struct Offer {
    double reach;
    uint32_t candidate, place;
    bool operator<(const Offer& other) const { return reach < other.reach; }
  };
  struct Outcome {
    double speed = 0;
    uint32_t guesses = 0;
  };

  void set_up(const Step& step);
  StepLoad with_rows(uint32_t rows) const;
  double verifying_seconds(uint32_t guesses) const;
  double pass_seconds(uint32_t drafter, uint32_t sequences);
  bool pick_bids(bool free_only);
  void gather_offers();
  bool within(const Offer& offer, uint32_t passes) const;
  void search(bool free_only, double* best);
  Outcome best_prefix(uint32_t passes);
  double draft_cost(const Offer& offer);
  void take(uint32_t guesses, uint32_t passes);

  Step step_;
  std::span<const std::unique_ptr<Drafter>> drafters_;
  std::vector<Candidate> candidates_;
  std::vector<Bid> bids_;
  std::vector<uint32_t> picked_;  // bid of each candidate in the plan being made, or kNone
  std::vector<Offer> offers_;     // heap, then in order
  std::vector<Offer> order_;
  std::vector<Pass> passes_;                      // by drafter
  std::vector<double> pass_seconds_;              // [drafters][sequences + 1], below 0: not asked yet
  std::array<double, Draft::kMost + 1> alone_{};  // seconds of the step with so many guesses of one sequence
  StepLoad::FurtherRow guess_ = {};               // what one adds, on average
  uint32_t most_sequences_ = 0;
};

}  // namespace kvasir
