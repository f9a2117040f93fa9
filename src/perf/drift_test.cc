#include "perf/drift.h"

#include <gtest/gtest.h>

#include <cmath>

namespace kvasir {
namespace {

// A machine whose parts take `truth` times what was measured; steps are predicted with the filter's factors.
class Machine {
 public:
  explicit Machine(DriftFilter& filter) : filter_(filter) {}

  // One step whose parts take `parts` seconds by measured rates; `slice`: seconds that others stole of it.
  // Without `rows` a step of much arithmetic is one of 256 rows, another of one. Returns the relative error
  // of the prediction.
  double step(const StepSeconds& parts, const StepSeconds& truth, double slice = 0, uint32_t rows = 0) {
    if (rows == 0) rows = parts[1] > parts[0] ? 256 : 1;
    StepSeconds predicted{};
    double sum = 0, measured = slice;
    for (uint32_t i = 0; i < kStepParts; ++i) {
      predicted[i] = parts[i] * filter_.factor(static_cast<StepPart>(i)) * filter_.rows_factor(rows);
      sum += predicted[i];
      measured += parts[i] * truth[i];
    }
    // Noise of up to two per cent, the same every time.
    state_ = state_ * 1664525u + 1013904223u;
    measured *= 0.98 + 0.04 * (state_ >> 8) * 0x1p-24;
    filter_.observe(predicted, rows, measured);
    return (sum - measured) / measured;
  }

 private:
  DriftFilter& filter_;
  uint32_t state_ = 1;
};

constexpr StepSeconds kDecode = {0.010, 0.001, 0.002, 0.001};
constexpr StepSeconds kPrompt = {0.005, 0.060, 0.010, 0.005};
constexpr StepSeconds kAsMeasured = {1, 1, 1, 1};
constexpr StepSeconds kTwice = {2, 2, 2, 2};

TEST(DriftFilter, BeginsAtWhatWasMeasured) {
  const DriftFilter filter;
  for (uint32_t i = 0; i < kStepParts; ++i) EXPECT_EQ(filter.factor(static_cast<StepPart>(i)), 1);
}

TEST(DriftFilter, FirstStepsTeachTheMost) {
  DriftFilter filter;
  Machine machine(filter);
  machine.step(kDecode, kTwice);
  for (int i = 0; i < 3; ++i) machine.step(kDecode, kTwice);
  EXPECT_LT(std::abs(machine.step(kDecode, kTwice)), 0.05);
}

// An engine's first step touches its memory.
TEST(DriftFilter, FirstStepMayTakeVeryLong) {
  DriftFilter filter;
  Machine machine(filter);
  machine.step(kDecode, kAsMeasured, 0.15);
  EXPECT_EQ(filter.factor(StepPart::kCompute), 1);
  for (int i = 0; i < 3; ++i) machine.step(kDecode, kAsMeasured);
  EXPECT_LT(std::abs(machine.step(kPrompt, kAsMeasured)), 0.05);
}

// Twice as slow, and back: from the fourth step on the error is below a tenth again.
TEST(DriftFilter, FollowsAMachineThatBecomesTwiceAsSlow) {
  DriftFilter filter;
  Machine machine(filter);
  for (int i = 0; i < 100; ++i) machine.step(kDecode, kAsMeasured);
  for (const StepSeconds& truth : {kTwice, kAsMeasured}) {
    for (uint32_t i = 0; i < DriftFilter::kOutliers; ++i)
      EXPECT_GT(std::abs(machine.step(kDecode, truth)), 0.4) << "the change is a surprise at first";
    for (int i = 0; i < 20; ++i) EXPECT_LT(std::abs(machine.step(kDecode, truth)), 0.1) << i;
  }
}

TEST(DriftFilter, StolenSlicesMoveNothing) {
  DriftFilter filter;
  Machine machine(filter);
  for (int i = 0; i < 100; ++i) machine.step(kDecode, kAsMeasured);
  const double before = filter.factor(StepPart::kStream);
  machine.step(kDecode, kAsMeasured, 0.02);
  EXPECT_NEAR(filter.factor(StepPart::kStream), before, 0.002);  // back to 1 by a two-thousandth, no more
  machine.step(kDecode, kAsMeasured, 0.05);
  EXPECT_NEAR(filter.factor(StepPart::kStream), before, 0.004);
  for (int i = 0; i < 200; ++i) {
    machine.step(kDecode, kAsMeasured, i % 5 == 4 ? 0.015 : 0);
    EXPECT_NEAR(filter.factor(StepPart::kStream), 1, 0.06) << i;
  }
}

// Memory halves its speed while arithmetic stands still: what is learnt from decodes and prompts tells which.
TEST(DriftFilter, TellsMemoryFromArithmetic) {
  DriftFilter filter;
  Machine machine(filter);
  const StepSeconds slow_memory = {2, 1, 1, 1};
  for (int i = 0; i < 200; ++i) machine.step(i % 2 == 0 ? kDecode : kPrompt, slow_memory);
  EXPECT_NEAR(filter.factor(StepPart::kStream) / filter.factor(StepPart::kCompute), 2, 0.25);
  EXPECT_LT(std::abs(machine.step(kPrompt, slow_memory)), 0.05);
  EXPECT_LT(std::abs(machine.step(kDecode, slow_memory)), 0.05);
}

// Rates that are wrong at eight rows only are learnt there, and do not spoil what is known of others.
TEST(DriftFilter, LearnsWhatRatesGetWrongAtANumberOfRows) {
  DriftFilter filter;
  Machine machine(filter);
  const StepSeconds dear = {1.3, 1.3, 1.3, 1.3};
  for (int i = 0; i < 150; ++i) {
    machine.step(kDecode, kAsMeasured, 0, 1);
    machine.step(kDecode, dear, 0, 8);
    machine.step(kPrompt, kAsMeasured, 0, 256);
  }
  EXPECT_LT(std::abs(machine.step(kDecode, dear, 0, 8)), 0.06);
  EXPECT_LT(std::abs(machine.step(kDecode, kAsMeasured, 0, 1)), 0.06);
  EXPECT_LT(std::abs(machine.step(kPrompt, kAsMeasured, 0, 256)), 0.06);
  EXPECT_GT(filter.rows_factor(8), 1.15 * filter.rows_factor(1));
  // Between powers of two along a line; beyond the last as there.
  EXPECT_DOUBLE_EQ(filter.rows_factor(12), (filter.rows_factor(8) + filter.rows_factor(16)) / 2);
  EXPECT_EQ(filter.rows_factor(512), filter.rows_factor(5000));
}

TEST(DriftFilter, FactorsAreBounded) {
  DriftFilter filter;
  for (int i = 0; i < 50; ++i) filter.observe({0.01, 0, 0, 0}, 1, 1000);
  EXPECT_DOUBLE_EQ(filter.factor(StepPart::kStream), DriftFilter::kMostDrift);
  for (int i = 0; i < 200; ++i) filter.observe({0.01, 0, 0, 0}, 1, 1e-9);
  EXPECT_DOUBLE_EQ(filter.factor(StepPart::kStream), 1 / DriftFilter::kMostDrift);
}

TEST(DriftFilter, NonsenseIsNoObservation) {
  DriftFilter filter;
  for (const double measured : {0.0, -1.0, std::nan(""), HUGE_VAL}) filter.observe(kDecode, 1, measured);
  filter.observe({0, 0, 0, 0}, 1, 1);
  EXPECT_EQ(filter.factor(StepPart::kStream), 1);
}

TEST(DriftFilter, SameObservationsSameFactors) {
  DriftFilter a, b;
  Machine one(a), two(b);
  for (int i = 0; i < 300; ++i) {
    const StepSeconds truth = {1 + i % 7 * 0.1, 1.2, 0.9, 1};
    one.step(i % 3 == 0 ? kPrompt : kDecode, truth);
    two.step(i % 3 == 0 ? kPrompt : kDecode, truth);
  }
  for (uint32_t i = 0; i < kStepParts; ++i)
    EXPECT_EQ(a.factor(static_cast<StepPart>(i)), b.factor(static_cast<StepPart>(i)));
}

TEST(ErrorWindow, SummarisesTheNewest) {
  ErrorWindow window;
  EXPECT_EQ(window.summary().count, 0u);
  for (int i = 0; i < 100; ++i) window.add(100);  // forgotten below
  // -1.00, -0.99 .. : the 256 newest are -0.50 to 2.05, in hundredths.
  for (int i = -50; i <= 205; ++i) window.add(i / 100.0);
  const ErrorWindow::Summary s = window.summary();
  EXPECT_EQ(s.count, ErrorWindow::kWindow);
  EXPECT_NEAR(s.bias, 0.775, 0.006);
  EXPECT_NEAR(s.median, 0.775, 0.011);  // a fifth of them are negative
  EXPECT_NEAR(s.p90, 1.795, 0.011);
}

}  // namespace
}  // namespace kvasir
