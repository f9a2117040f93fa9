#include "decoding/acceptance.h"

#include <algorithm>
#include <cmath>

namespace kvasir {
namespace {

// Before anything was seen: one right and one wrong guess, so that a new class is tried and soon judged.
constexpr double kPriorRight = 1;
constexpr double kPriorSeen = 2;
// Guesses of a sequence that weigh as much as what all sequences say.
constexpr double kTrust = 4;
constexpr double kLeast = 0.02;  // no rate is nearer to 0 or 1

double forget(double half_life) {
  return std::exp2(-1.0 / half_life);
}

}  // namespace

Acceptance::Acceptance() {
  for (auto& places : cells_) places.fill({0, 0});
}

uint32_t Acceptance::bucket(uint32_t place) {
  if (place <= 2) return place;
  if (place <= 4) return 3;
  return place <= 8 ? 4 : 5;
}

void Acceptance::count(uint32_t evidence, uint32_t place, bool right) {
  Cell& cell = cells_[std::min(evidence, Draft::kEvidences - 1)][bucket(place)];
  const double kept = forget(kHalfLife);
  cell.right = cell.right * kept + (right ? 1 : 0);
  cell.seen = cell.seen * kept + 1;
}

double Acceptance::rate(uint32_t evidence, uint32_t place) const {
  const Cell& cell = cells_[std::min(evidence, Draft::kEvidences - 1)][bucket(place)];
  return std::clamp((cell.right + kPriorRight) / (cell.seen + kPriorSeen), kLeast, 1 - kLeast);
}

void SequenceAcceptance::count(double expected, bool right) {
  const double kept = forget(kHalfLife);
  right_ = right_ * kept + (right ? 1 : 0);
  wrong_ = wrong_ * kept + (right ? 0 : 1);
  expected_right_ = expected_right_ * kept + expected;
  expected_wrong_ = expected_wrong_ * kept + (1 - expected);
}

double SequenceAcceptance::rate(double expected) const {
  const double odds = expected / (1 - expected) * ((right_ + kTrust) / (expected_right_ + kTrust)) *
                      ((expected_wrong_ + kTrust) / (wrong_ + kTrust));
  return std::clamp(odds / (1 + odds), kLeast, 1 - kLeast);
}

void DraftCheck::compare(TokenId token, Acceptance& all, SequenceAcceptance& sequence) {
  if (!open()) return;
  const bool right = draft_.tokens[next_] == token;
  sequence.count(all.rate(draft_.evidence, next_), right);
  all.count(draft_.evidence, next_, right);
  next_ = right ? next_ + 1 : draft_.size;
}

}  // namespace kvasir
