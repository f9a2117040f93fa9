#include "decoding/acceptance.h"

#include <algorithm>
#include <cmath>

namespace kvasir {
namespace {

constexpr double kFarthest = 6;  // shift of the logarithm of the odds
constexpr double kLeast = 0.02;  // no rate is nearer to 0 or 1

double forget(double half_life) {
  return std::exp2(-1.0 / half_life);
}

}  // namespace

uint32_t Acceptance::bucket(uint32_t place) {
  if (place <= 2) return place;
  if (place <= 4) return 3;
  return place <= 8 ? 4 : 5;
}

void Acceptance::count(uint32_t evidence, uint32_t place, bool right) {
  add(cells_[std::min(evidence, Draft::kEvidences - 1)][bucket(place)], right);
}

void Acceptance::add(Cell& cell, bool right) {
  const double kept = forget(kHalfLife);
  cell.right = cell.right * kept + (right ? 1 : 0);
  cell.seen = cell.seen * kept + 1;
}

double Acceptance::rate(uint32_t evidence, uint32_t place, double hope) const {
  evidence = std::min(evidence, Draft::kEvidences - 1);
  const auto with = [](const Cell& cell, double expected) {
    return (cell.right + kFirst * expected) / (cell.seen + kFirst);
  };
  const auto& cells = cells_[evidence];
  double rate = 0;
  if (place == 0) {
    rate = with(cells[0], expected_[evidence].first);
  } else {
    rate = expected_[evidence].later;
    for (uint32_t i = 1; i <= bucket(place); ++i) rate = with(cells[i], rate);
  }
  const double seen = cells[bucket(place)].seen + kFirst;
  if (hope != 0) rate += hope * std::sqrt(rate * (1 - rate) / (seen + 1));
  return std::clamp(rate, kLeast, 1 - kLeast);
}

void Acceptance::count_grade(uint32_t grade, bool right) {
  add(grades_[grade], right);
}

// Two tokens alone in question, the first has 1 / (1 + exp(-lead)): for the middle of each grade.
double Acceptance::grade_rate(uint32_t grade) const {
  constexpr double kAtFirst[Draft::kGrades] = {0.4, 0.5, 0.6, 0.75, 0.87, 0.93, 0.96, 0.98};
  const Cell& cell = grades_[grade];
  return std::clamp((cell.right + kFirst * kAtFirst[grade]) / (cell.seen + kFirst), kLeast, 1 - kLeast / 4);
}

void Acceptance::count_going_on(uint32_t place, bool made) {
  add(going_on_[bucket(place)], made);
}

double Acceptance::going_on(uint32_t place) const {
  const Cell& cell = going_on_[bucket(place)];
  return (cell.right + 1) / (cell.seen + 1);
}

// The likeliest shift is where kPrecision * shift equals the sum of (right - rate), older guesses counting
// less: forgetting leaves a part of the left side over, and the new guess adds to the right one.
void SequenceAcceptance::count(double expected, bool right) {
  const double kept = forget(kHalfLife);
  const double now = rate(expected);
  precision_ = precision_ * kept + now * (1 - now);
  shift_ += ((right ? 1 : 0) - now - (1 - kept) * kPrecision * shift_) / (kPrecision + precision_);
  shift_ = std::clamp(shift_, -kFarthest, kFarthest);
  factor_ = std::exp(shift_);
}

double SequenceAcceptance::rate(double expected) const {
  return rate(expected, 0);
}

double SequenceAcceptance::rate(double expected, double off) const {
  const double odds = expected / (1 - expected) * factor_ * (off == 0 ? 1 : std::exp(off));
  return std::clamp(odds / (1 + odds), kLeast, 1 - kLeast);
}

double SequenceAcceptance::deviation(uint32_t idle) const {
  return 1 / std::sqrt(kPrecision + precision_ * std::exp2(-idle / kIdleHalfLife));
}

void DraftCheck::compare(TokenId token, Acceptance& all, SequenceAcceptance& sequence) {
  if (!open()) return;
  const bool right = draft_.tokens[next_] == token;
  sequence.count(all.rate(draft_.evidence, next_), right);
  all.count(draft_.evidence, next_, right);
  if (draft_.graded) all.count_grade(draft_.grades[next_], right);
  if (right && draft_.graded && (next_ + 1 < draft_.size || draft_.gave_up))
    all.count_going_on(next_ + 1, next_ + 1 < draft_.size);
  next_ = right ? next_ + 1 : draft_.size;
}

}  // namespace kvasir
