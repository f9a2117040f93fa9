#include "perf/drift.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace kvasir {
namespace {

// Standard deviations of the logarithms: how far they may lie from 0 at first, and how far they walk per
// step. Other tenants take the time of the cores, which is common, and, on its own, memory bandwidth: on the
// virtual machines where this was written reads went from 28 to 60 GB/s and back within a minute while the
// arithmetic peak stood still. What depends on the rows is the fault of rates, which hardly walks. Chosen for
// the least errors over the recorded steps of `kvasir plan --check` of four models.
struct Deviation {
  double first, walk;
};
constexpr Deviation kCommon = {0.1, 0.006}, kRows = {0.07, 0.004};
constexpr std::array<Deviation, kStepParts> kParts = {
    {{0.3, 0.03}, {0.1, 0.005}, {0.2, 0.01}, {0.15, 0.005}}};
// A factor of a part or of rows goes back to 1 by so much per step: what is not seen for long is worth what
// was measured.
constexpr double kKept = 0.9995;
// Noise of one step: at least and at most.
constexpr double kLeastNoise = 0.03, kMostNoise = 0.15;
// A surprise is more than so many times the noise, and never less than a fifth.
constexpr double kSurprise = 3, kLeastSurprise = 0.2;
// A logarithm: three times. The first step of an engine took 12 times what its like took later.
constexpr double kFirstTouch = 1.1;
// Normal errors have 1.4826 times their median absolute value as standard deviation.
constexpr double kDeviationOfMedian = 1.4826;

Deviation deviation(uint32_t state) {
  if (state == 0) return kCommon;
  return state <= kStepParts ? kParts[state - 1] : kRows;
}

// The knot at or before so many rows, and how far it is to the next.
std::pair<uint32_t, double> place_of(uint32_t rows, uint32_t knots) {
  const auto knot = static_cast<uint32_t>(std::bit_width(std::max(rows, 1u)) - 1);
  if (knot + 1 >= knots) return {knots - 1, 0};
  return {knot, static_cast<double>(rows) / (1u << knot) - 1};
}

double quantile(std::vector<double>& values, double part) {
  const auto at =
      values.begin() + static_cast<ptrdiff_t>(part * static_cast<double>(values.size() - 1) + 0.5);
  std::nth_element(values.begin(), at, values.end());
  return *at;
}

}  // namespace

const char* step_part_name(StepPart part) {
  static constexpr const char* kNames[] = {"stream", "compute", "attention", "rest"};
  return kNames[static_cast<size_t>(part)];
}

DriftFilter::DriftFilter() {
  for (uint32_t i = 0; i < kStates; ++i) covariance_[i][i] = deviation(i).first * deviation(i).first;
  set_factors();
}

double DriftFilter::rows_factor(uint32_t rows) const {
  const auto [knot, part] = place_of(rows, kKnots);
  return part == 0 ? rows_factors_[knot] : rows_factors_[knot] * (1 - part) + rows_factors_[knot + 1] * part;
}

double DriftFilter::noise() const {
  const uint32_t held = std::min<uint32_t>(error_count_, static_cast<uint32_t>(errors_.size()));
  if (held < 8) return kMostNoise;
  std::array<double, 32> sorted = errors_;
  std::nth_element(sorted.begin(), sorted.begin() + held / 2, sorted.begin() + held);
  return std::clamp(kDeviationOfMedian * sorted[held / 2], kLeastNoise, kMostNoise);
}

void DriftFilter::observe(const StepSeconds& seconds, uint32_t rows, double measured) {
  double predicted = 0;
  for (const double s : seconds) predicted += s;
  if (!(predicted > 0) || !(measured > 0) || !std::isfinite(measured)) return;
  const double error = std::log(measured / predicted);
  const double limit = std::max(kLeastSurprise, kSurprise * noise());
  // Of the first step nothing is known yet, so it is no surprise, unless it took so long as only pages that
  // are touched for the first time do.
  const bool first = error_count_ == 0 && std::abs(error) < kFirstTouch;
  errors_[error_count_ % errors_.size()] = std::abs(error);
  ++error_count_;
  std::array<double, kStates> h{1.0};
  for (uint32_t i = 0; i < kStepParts; ++i) h[i + 1] = seconds[i] / predicted;
  const auto [knot, part] = place_of(rows, kKnots);
  h[kFirstKnot + knot] = 1 - part;
  if (part > 0) h[kFirstKnot + knot + 1] = part;
  walk();
  if (std::abs(error) > limit && !first) {
    const int32_t sign = error > 0 ? 1 : -1;
    surprises_ = surprises_ * sign > 0 ? surprises_ + sign : sign;
    if (surprises_ * sign < static_cast<int32_t>(kOutliers)) return;
    for (uint32_t i : {0u, 1u}) covariance_[i][i] += error * error;
  }
  surprises_ = 0;
  take(h, error);
}

// The factors as they may have become since the last step.
void DriftFilter::walk() {
  const auto kept = [](uint32_t i) { return i == 0 ? 1 : kKept; };
  for (uint32_t i = 0; i < kStates; ++i) {
    state_[i] *= kept(i);
    for (uint32_t j = 0; j < kStates; ++j) covariance_[i][j] *= kept(i) * kept(j);
    covariance_[i][i] += deviation(i).walk * deviation(i).walk;
  }
}

void DriftFilter::take(const std::array<double, kStates>& h, double error) {
  std::array<double, kStates> ph{};
  double variance = noise() * noise();
  for (uint32_t i = 0; i < kStates; ++i) {
    for (uint32_t j = 0; j < kStates; ++j) ph[i] += covariance_[i][j] * h[j];
    variance += h[i] * ph[i];
  }
  for (uint32_t i = 0; i < kStates; ++i) state_[i] += ph[i] / variance * error;
  for (uint32_t i = 0; i < kStates; ++i) {
    for (uint32_t j = 0; j < kStates; ++j) covariance_[i][j] -= ph[i] * ph[j] / variance;
  }
  set_factors();
}

void DriftFilter::set_factors() {
  const double most = std::log(kMostDrift);
  for (uint32_t i = 0; i < kStates; ++i) state_[i] = std::clamp(state_[i], -most, most);
  for (uint32_t i = 0; i < kStepParts; ++i)
    factors_[i] = std::exp(std::clamp(state_[0] + state_[i + 1], -most, most));
  for (uint32_t i = 0; i < kKnots; ++i) rows_factors_[i] = std::exp(state_[kFirstKnot + i]);
}

void ErrorWindow::add(double error) {
  if (errors_.size() < kWindow)
    errors_.push_back(error);
  else
    errors_[next_] = error;
  next_ = (next_ + 1) % kWindow;
}

ErrorWindow::Summary ErrorWindow::summary() const {
  Summary s{.count = static_cast<uint32_t>(errors_.size())};
  if (errors_.empty()) return s;
  std::vector<double> sorted = errors_;
  s.bias = quantile(sorted, 0.5);
  for (double& e : sorted) e = std::abs(e);
  s.median = quantile(sorted, 0.5);
  s.p90 = quantile(sorted, 0.9);
  return s;
}

}  // namespace kvasir
