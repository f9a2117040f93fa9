#pragma once

#include <array>
#include <cstdint>

#include "decoding/drafter.h"

namespace kvasir {

// How often a drafter's guesses are right, learnt as they are compared with the tokens that came. For each
// class of evidence and each place in the draft: the share of guesses that were right where those before them
// were, as the mean of a Beta distribution whose counts are forgotten over time (half-life kHalfLife guesses
// of the class and place). It begins with what is expected, as if that had been seen in kFirst
// guesses: of the first two places what the drafter says, of further ones what is found in the places before.
class Acceptance {
 public:
  static constexpr double kHalfLife = 512;
  static constexpr double kFirst = 4;

  explicit Acceptance(const DraftChances& expected = {}) : expected_(expected) {}

  void count(uint32_t evidence, uint32_t place, bool right);
  // The same by the guess's grade, whatever its place; at first as the leads of logits say.
  void count_grade(uint32_t grade, bool right);
  double grade_rate(uint32_t grade) const;
  // Behind a right guess, whether a drafter that may give up made one in this place; and how often it does.
  void count_going_on(uint32_t place, bool made);
  double going_on(uint32_t place) const;
  // Chance that the guess in this place is right if those before it are; higher by `hope` standard deviations
  // of what is known of such guesses.
  double rate(uint32_t evidence, uint32_t place, double hope = 0) const;

 private:
  // Places that share their counts: 0, 1, 2, 3-4, 5-8, the others.
  static constexpr uint32_t kPlaces = 6;
  static uint32_t bucket(uint32_t place);
  struct Cell {
    double right = 0, seen = 0;
  };
  static void add(Cell& cell, bool right);
  DraftChances expected_;
  std::array<std::array<Cell, kPlaces>, Draft::kEvidences> cells_{};
  std::array<Cell, Draft::kGrades> grades_{};
  std::array<Cell, kPlaces> going_on_{};
};

// By how much one sequence is easier or harder to guess than rate() says: what has to be added to the
// logarithm of the odds, which before anything was seen is 0 give or take 1 / sqrt(kPrecision). It is the
// likeliest value, followed by one step of Newton's method for each guess, with forgetting (half-life
// kHalfLife guesses). So a single wrong guess where nearly all were to be right says much, and one where half
// of them were to be says little.
class SequenceAcceptance {
 public:
  static constexpr double kHalfLife = 96;
  static constexpr double kPrecision = 0.6;
  static constexpr double kIdleHalfLife = 256;

  void count(double expected, bool right);
  double rate(double expected) const;
  // How much the rate's logarithm of the odds may be off, as one standard deviation, when nothing has been
  // compared for so many steps: what was known fades with them (half-life kIdleHalfLife).
  double deviation(uint32_t idle) const;
  // The rate if it is off by so much.
  double rate(double expected, double off) const;

 private:
  double shift_ = 0;      // of the logarithm of the odds
  double precision_ = 0;  // of it, beyond kPrecision
  double factor_ = 1;     // exp(shift_)
};

// A draft while the tokens that come are compared with it.
class DraftCheck {
 public:
  bool open() const { return next_ < draft_.size; }
  void start(const Draft& draft) { draft_ = draft, next_ = 0; }
  void stop() { next_ = draft_.size; }
  // The next token that came. Counts whether the guess in its place was right; where not, the check is over.
  void compare(TokenId token, Acceptance& all, SequenceAcceptance& sequence);

 private:
  Draft draft_;
  uint32_t next_ = 0;
};

}  // namespace kvasir
