#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace kvasir {

// What bounds a step, and where its seconds go.
enum class StepPart : uint8_t { kStream, kCompute, kAttention, kRest };
inline constexpr uint32_t kStepParts = 4;
// Names for logs and metrics: "stream" (weights from memory), "compute" (weights' arithmetic), "attention",
// "rest" (norms, barriers, sampling).
const char* step_part_name(StepPart part);
using StepSeconds = std::array<double, kStepParts>;

// Follows how a machine's speed drifts away from what was measured: a factor common to everything, one per
// part, and one for the number of rows (kernels change their way with it; along lines between powers of two),
// in logarithms, estimated from whole steps by a Kalman filter (R. E. Kalman, "A New Approach to Linear
// Filtering and Prediction Problems", 1960) whose observation is the logarithm of measured over predicted, to
// which each part contributes as its share of the step.
//  - A machine that becomes twice as slow is followed within kOutliers steps: so many surprises in a row, of
//  one
//    sign, are a change, and the filter then trusts the newest.
//  - Fewer are outliers (a stolen time slice) and move nothing.
//  - Factors stay within 1 / kMostDrift .. kMostDrift.
// The same observations give the same factors.
class DriftFilter {
 public:
  static constexpr uint32_t kOutliers = 3;
  static constexpr double kMostDrift = 8.0;

  DriftFilter();

  double factor(StepPart part) const { return factors_[static_cast<size_t>(part)]; }
  double rows_factor(uint32_t rows) const;
  // A step of `rows` rows whose parts were predicted, with the factors, to take `seconds`, and whose whole
  // took `measured`.
  void observe(const StepSeconds& seconds, uint32_t rows, double measured);

 private:
  static constexpr uint32_t kKnots = 10;  // 1, 2, 4 .. 512 rows
  // The common one, those of parts, those of rows.
  static constexpr uint32_t kFirstKnot = 1 + kStepParts, kStates = kFirstKnot + kKnots;

  void walk();
  void take(const std::array<double, kStates>& h, double error);
  void set_factors();
  double noise() const;

  std::array<double, kStates> state_{};  // logarithms
  std::array<std::array<double, kStates>, kStates> covariance_{};
  StepSeconds factors_;
  std::array<double, kKnots> rows_factors_;
  std::array<double, 32> errors_{};  // the last absolute ones, for the noise
  uint32_t error_count_ = 0;
  int32_t surprises_ = 0;  // in a row; their sign
};

// Relative errors of the last kWindow predictions: (predicted - measured) / measured.
class ErrorWindow {
 public:
  static constexpr uint32_t kWindow = 256;
  struct Summary {
    uint32_t count = 0;
    double median = 0, p90 = 0;  // of the absolute errors
    double bias = 0;             // the median of the signed ones
  };
  void add(double error);
  Summary summary() const;

 private:
  std::vector<double> errors_;
  uint32_t next_ = 0;
};

}  // namespace kvasir
