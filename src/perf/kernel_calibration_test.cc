#include "perf/kernel_calibration.h"

#include <gtest/gtest.h>

#include "perf/perf_model_rig.h"

namespace kvasir {
namespace {

TEST(KernelCalibration, FillsInTheModelsKernels) {
  ThreadPool pool(2);
  const WeightSizes weights = small_weights();
  auto calibration =
      KernelCalibration::make(pool, weights, {.isa = best_isa(), .kv_type = KvType::kInt8, .head_dim = 64});
  ASSERT_TRUE(calibration.ok()) << calibration.message();
  EXPECT_EQ(calibration->bytes(), uint64_t{16} << 20);  // as much as the operands take
  for (int i = 0; i < 2; ++i) calibration->pass();
  EXPECT_EQ(calibration->passes(), 2u);
  HardwareProfile before = small_machine();
  before.kernels.reset();
  const HardwareProfile after = calibration->applied_to(before, {1, 2});
  EXPECT_EQ(after.reads[0].rate.all_threads, before.reads[0].rate.all_threads);
  ASSERT_TRUE(after.kernels);
  EXPECT_EQ(after.kernels->memory_bytes, calibration->bytes());
  ASSERT_EQ(after.kernels->linear.size(), 1u);
  EXPECT_EQ(after.kernels->linear[0].type, DType::kQ8_0);
  ASSERT_EQ(after.kernels->attention.size(), 1u);
  EXPECT_EQ(after.kernels->attention[0].kv_type, KvType::kInt8);
  EXPECT_GT(after.kernels->linear[0].memory.front(), 0);
}

TEST(KernelCalibration, SaysWhatMemoryItMisses) {
  ThreadPool pool(1);
  const auto none = KernelCalibration::make(
      pool, small_weights(),
      {.isa = best_isa(), .kv_type = KvType::kF16, .head_dim = 64, .memory_limit = 1 << 20});
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.status().code(), ErrorCode::kResourceExhausted);
  EXPECT_NE(none.message().find("16 MiB"), std::string::npos);
}

}  // namespace
}  // namespace kvasir
