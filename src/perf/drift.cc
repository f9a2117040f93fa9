#include "perf/drift.h"

#include <algorithm>
#include <cmath>

namespace kvasir {
namespace {

// Standard deviations of the logarithms, the common factor first: how far they may lie from 0 at first, and
// how far they walk per step. Other tenants take the time of the cores, which is common, and, on its own,
// memory bandwidth: on the virtual machines where this was written reads went from 28 to 60 GB/s and back
// within a minute while the arithmetic peak stood still.
constexpr std::array<double, 1 + kStepParts> kFirst = {0.3, 0.3, 0.15, 0.15, 0.15};
constexpr std::array<double, 1 + kStepParts> kWalk = {0.012, 0.015, 0.006, 0.006, 0.006};
// A part's own factor goes back to 1 by so much per step: what is not seen for long is worth what was
// measured.
constexpr double kPartKept = 0.9995;
// Noise of one step: at least and at most.
constexpr double kLeastNoise = 0.03, kMostNoise = 0.15;
// A surprise is more than so many times the noise, and never less than a fifth.
constexpr double kSurprise = 3, kLeastSurprise = 0.2;
// Normal errors have 1.4826 times their median absolute value as standard deviation.
constexpr double kDeviationOfMedian = 1.4826;

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
  for (uint32_t i = 0; i < kStates; ++i) covariance_[i][i] = kFirst[i] * kFirst[i];
  set_factors();
}

double DriftFilter::noise() const {
  const uint32_t held = std::min<uint32_t>(error_count_, static_cast<uint32_t>(errors_.size()));
  if (held < 8) return kMostNoise;
  std::array<double, 32> sorted = errors_;
  std::nth_element(sorted.begin(), sorted.begin() + held / 2, sorted.begin() + held);
  return std::clamp(kDeviationOfMedian * sorted[held / 2], kLeastNoise, kMostNoise);
}

void DriftFilter::observe(const StepSeconds& seconds, double measured) {
  double predicted = 0;
  for (const double s : seconds) predicted += s;
  if (!(predicted > 0) || !(measured > 0) || !std::isfinite(measured)) return;
  const double error = std::log(measured / predicted);
  const double limit = std::max(kLeastSurprise, kSurprise * noise());
  const bool first = error_count_ == 0;  // nothing is known yet: no surprise
  errors_[error_count_ % errors_.size()] = std::abs(error);
  ++error_count_;
  std::array<double, kStates> h{1.0};
  for (uint32_t i = 0; i < kStepParts; ++i) h[i + 1] = seconds[i] / predicted;
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
  for (uint32_t i = 0; i < kStates; ++i) {
    const double kept = i == 0 ? 1 : kPartKept;
    state_[i] *= kept;
    for (uint32_t j = 0; j < kStates; ++j) covariance_[i][j] *= kept * (j == 0 ? 1 : kPartKept);
    covariance_[i][i] += kWalk[i] * kWalk[i];
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
