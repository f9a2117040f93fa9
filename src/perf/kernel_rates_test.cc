#include "perf/kernel_rates.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <boost/json.hpp>

#include "perf/hardware_profile.h"
#include "perf/kernel_bench.h"
#include "perf/kernel_rates_json.h"

namespace kvasir {
namespace {

using testing::Each;
using testing::Ge;
using testing::HasSubstr;

KernelRates sample() {
  KernelRates r;
  r.linear_rows = {1, 4};
  r.attention_rows = {1, 8, 96};
  r.linear = {{DType::kQ4_K, 2e-9, {1e-11, 3e-11}, {2e-11, 3.5e-11}},
              {DType::kQ6_K, 3e-9, {1.5e-11, 3e-11}, {3e-11, 1.0 / 3e10}}};
  r.attention = {
      {KvType::kF16, 64, {1e-6, 2e-6, 3e-6}, {4e-7, 4e-7, 5e-7}, {1e-9, 2e-9, 3e-9}, {2e-9, 2e-9, 3e-9}},
      {KvType::kInt8, 128, {1e-6, 2e-6, 3e-6}, {0, 0, 0}, {3e-9, 4e-9, 5e-9}, {4e-9, 4e-9, 5e-9}}};
  r.rows.norm = 2e-10;
  r.rows.trig = 1.5e-8;
  r.rows.open_f16 = 3e-10;
  r.memory_bytes = 1 << 28;
  return r;
}

TEST(KernelRates, InterpolatesAndGoesOnAlongTheLastSlope) {
  const std::vector<uint32_t> xs = {1, 4, 8};
  const std::vector<double> ys = {2, 5, 13};
  EXPECT_DOUBLE_EQ(interpolate(xs, ys, 0), 2);
  EXPECT_DOUBLE_EQ(interpolate(xs, ys, 1), 2);
  EXPECT_DOUBLE_EQ(interpolate(xs, ys, 3), 4);
  EXPECT_DOUBLE_EQ(interpolate(xs, ys, 6), 9);
  EXPECT_DOUBLE_EQ(interpolate(xs, ys, 12), 21);
}

TEST(KernelRates, WhatWasNotMeasuredTakesTheNearest) {
  const KernelRates r = sample();
  EXPECT_EQ(r.of(DType::kQ4_K).type, DType::kQ4_K);
  EXPECT_EQ(r.of(DType::kF16).type, DType::kQ6_K);  // the dearest
  EXPECT_EQ(r.of(KvType::kF16, 64).cached[0], 1e-9);
  EXPECT_DOUBLE_EQ(r.of(KvType::kF16, 128).cached[0], 2e-9);  // of the same KV type, twice the head
  EXPECT_DOUBLE_EQ(r.of(KvType::kInt8, 64).memory[1], 2e-9);
}

Result<KernelRates> parsed(const std::string& text) {
  return read_kernel_rates(boost::json::parse(text).as_object(), "kernels.");
}

TEST(KernelRates, JsonReadsBackWhatItWrote) {
  const KernelRates r = sample();
  const auto back = parsed(kernel_rates_json(r));
  ASSERT_TRUE(back.ok()) << back.message();
  EXPECT_EQ(back->linear_rows, r.linear_rows);
  ASSERT_EQ(back->linear.size(), 2u);
  EXPECT_EQ(back->linear[1].type, DType::kQ6_K);
  EXPECT_EQ(back->linear[1].memory, r.linear[1].memory);
  EXPECT_EQ(back->linear[0].unpack, 2e-9);
  ASSERT_EQ(back->attention.size(), 2u);
  EXPECT_EQ(back->attention[1].kv_type, KvType::kInt8);
  EXPECT_EQ(back->attention[1].head_dim, 128u);
  EXPECT_EQ(back->attention[0].call, r.attention[0].call);
  EXPECT_EQ(back->attention[0].begin, r.attention[0].begin);
  EXPECT_EQ(back->memory_bytes, uint64_t{1} << 28);
  EXPECT_EQ(back->rows.open_f16, 3e-10);
  EXPECT_EQ(back->rows.norm, 2e-10);
  EXPECT_EQ(back->rows.trig, 1.5e-8);
  EXPECT_EQ(kernel_rates_json(*back), kernel_rates_json(r));
}

TEST(KernelRates, JsonRefusalsNameTheKeyAndTheFault) {
  const auto refusal = [](const std::string& from, const std::string& to) {
    std::string text = kernel_rates_json(sample());
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    const auto r = parsed(text.replace(at, from.size(), to));
    EXPECT_FALSE(r.ok()) << to;
    return r.ok() ? std::string() : r.message();
  };
  EXPECT_THAT(refusal("[1, 4]", "[4, 1]"), HasSubstr("'kernels.linear_rows' does not hold ascending"));
  EXPECT_THAT(refusal("[1, 4]", "[1]"), HasSubstr("has 1 entry"));
  EXPECT_THAT(refusal("[1, 4]", "[1, 4, 5]"), HasSubstr("'kernels.linear[0].cached' has 2 entries"));
  EXPECT_THAT(refusal("\"Q4_K\"", "\"Q9_K\""), HasSubstr("'kernels.linear[0].format' is 'Q9_K'"));
  EXPECT_THAT(refusal("\"kv\": \"int8\"", "\"kv\": \"int3\""), HasSubstr("'kernels.attention[1].kv'"));
  EXPECT_THAT(refusal("2e-11", "-1"), HasSubstr("'kernels.linear[0].memory' holds what is no number"));
  EXPECT_THAT(refusal("\"norm\"", "\"norn\""), HasSubstr("'kernels.per_value.norm' is missing"));
}

TEST(KernelRates, ProfilesKeepThem) {
  HardwareProfile p;
  p.threads = 2;
  p.clock_hz = 3e9;
  p.int8_macs = p.f32_macs = {1e11, 2e11};
  p.reads = {{1 << 20, {1e10, 2e10}}};
  EXPECT_FALSE(HardwareProfile::from_json(p.to_json())->kernels);
  p.kernels = sample();
  const auto back = HardwareProfile::from_json(p.to_json());
  ASSERT_TRUE(back.ok()) << back.message();
  ASSERT_TRUE(back->kernels);
  EXPECT_EQ(back->to_json(), p.to_json());
}

// 100 GMAC/s int8 by both threads, half of which kernels reach: 16 rows and 4 of unpacking at 20 ps each.
// Q8_0 keeps 34 bytes per 32 values, and reads reach 0.85 of 10 GB/s.
TEST(KernelRates, DerivedFromTheRoofline) {
  HardwareProfile p;
  p.threads = 2;
  p.clock_hz = 3e9;
  p.int8_macs = {0.5e11, 1e11};
  p.f32_macs = {1e10, 2e10};
  p.reads = {{1 << 20, {1e11, 2e11}}, {1 << 28, {8e9, 1e10}}};
  const DType formats[] = {DType::kQ8_0};
  const KernelRates r = derived_rates(p, formats);
  EXPECT_DOUBLE_EQ(interpolate(r.linear_rows, r.of(DType::kQ8_0).cached, 16),
                   (16 + kDerivedUnpackMacs) / 0.5e11);
  EXPECT_NEAR(interpolate(r.linear_rows, r.of(DType::kQ8_0).memory, 1), 34.0 / 32 / 0.85e10, 1e-13);
  // One row of a head of 64 by one thread: 128 multiply-adds at 0.4 of 10 GMAC/s; from memory 256 bytes at
  // 0.85 of its half of 10 GB/s.
  const AttentionRates a = r.of(KvType::kF16, 64);
  EXPECT_DOUBLE_EQ(a.cached[0], 128 / 4e9);
  EXPECT_DOUBLE_EQ(a.memory[0], 256 / 4.25e9);
}

TEST(KernelBench, EveryNumberIsThereAndAscends) {
  ThreadPool pool(2);
  AlignedBuffer memory(size_t{32} << 20);
  std::fill_n(memory.data(), memory.size(), std::byte{kOrdinaryByte});
  const DType formats[] = {DType::kQ4_K, DType::kF16};
  const KvType kv_types[] = {KvType::kF16, KvType::kInt8};
  const uint32_t heads[] = {64};
  const KernelRates r = measure_kernel_rates(
      pool, kernel_table(best_isa()), memory.as<const std::byte>(),
      {.formats = formats, .kv_types = kv_types, .head_dims = heads, .passes = 1, .progress = {}});
  ASSERT_EQ(r.linear.size(), 2u);
  ASSERT_EQ(r.attention.size(), 2u);
  for (const LinearRates& l : r.linear) {
    for (const auto& list : {l.cached, l.memory}) {
      ASSERT_EQ(list.size(), r.linear_rows.size());
      EXPECT_GT(list.front(), 0);
      EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
    }
    EXPECT_GT(l.unpack, 0);
  }
  for (const AttentionRates& a : r.attention) {
    for (const auto& list : {a.cached, a.memory}) {
      ASSERT_EQ(list.size(), r.attention_rows.size());
      EXPECT_GT(list.front(), 0);
      EXPECT_TRUE(std::is_sorted(list.begin(), list.end()));
    }
    EXPECT_THAT(a.call, Each(Ge(0)));
    EXPECT_THAT(a.begin, Each(Ge(0)));
  }
  EXPECT_EQ(r.memory_bytes, memory.size());
  for (const double v : {r.rows.norm, r.rows.quantize, r.rows.rope, r.rows.silu, r.rows.gelu, r.rows.add,
                         r.rows.store_f16, r.rows.store_int8, r.rows.trig, r.rows.scan})
    EXPECT_GT(v, 0);
}

}  // namespace
}  // namespace kvasir
