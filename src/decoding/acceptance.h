#pragma once

#include <array>
#include <cstdint>

#include "decoding/drafter.h"

namespace kvasir {

// How often a drafter's guesses are right, learnt as they are compared with the tokens that came. For each
// class of evidence and each place in the draft: the share of guesses that were right where those before them
// were, as the mean of a Beta distribution whose counts are forgotten over time (half-life kHalfLife guesses
// of the class and place).
class Acceptance {
 public:
  static constexpr double kHalfLife = 512;

  Acceptance();

  void count(uint32_t evidence, uint32_t place, bool right);
  // Chance that the guess in this place is right if those before it are.
  double rate(uint32_t evidence, uint32_t place) const;

 private:
  // Places that share their counts: 0, 1, 2, 3-4, 5-8, the others.
  static constexpr uint32_t kPlaces = 6;
  static uint32_t bucket(uint32_t place);
  struct Cell {
    double right, seen;
  };
  std::array<std::array<Cell, kPlaces>, Draft::kEvidences> cells_;
};

// By how much one sequence is easier or harder to guess than rate() says: the odds of its guesses against the
// odds expected, again with forgetting (half-life kHalfLife guesses).
class SequenceAcceptance {
 public:
  static constexpr double kHalfLife = 48;

  void count(double expected, bool right);
  double rate(double expected) const;

 private:
  double right_ = 0, wrong_ = 0, expected_right_ = 0, expected_wrong_ = 0;
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
