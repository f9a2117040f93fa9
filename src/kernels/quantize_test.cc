#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/linear_test_util.h"

namespace kvasir {
namespace {

struct Quantised {
  std::vector<int8_t> q;
  std::vector<float> d, ds;
  std::vector<int32_t> nsum, nsum16;
};

Quantised quantise(Isa isa, const std::vector<float>& x) {
  const uint32_t k = static_cast<uint32_t>(x.size());
  Quantised out{std::vector<int8_t>(k), std::vector<float>(k / 32), std::vector<float>(k / 32),
                std::vector<int32_t>(k / 32), std::vector<int32_t>(k / 16)};
  const QuantRows rows{out.q.data(), out.d.data(), out.ds.data(), out.nsum.data(), out.nsum16.data(), k};
  kernel_table(isa).quantize_rows(x.data(), k, 1, k, rows, 0);
  return out;
}

std::vector<std::vector<float>> awkward_groups() {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  std::vector<std::vector<float>> groups;
  const auto filled = [&](auto value_of) {
    std::vector<float> g(32);
    for (int i = 0; i < 32; ++i) g[i] = value_of(i);
    groups.push_back(g);
  };
  filled([](int) { return 0.0f; });
  filled([](int) { return -0.0f; });
  filled([](int i) { return 0x1p-149f * static_cast<float>(i - 16); });
  filled([](int i) { return 0x1p-149f * static_cast<float>(10 * i - 160); });
  filled([](int i) { return 0x1p-130f * static_cast<float>(3 * i - 50); });
  filled([](int i) { return 0x1.fffffep127f * (i % 2 == 0 ? 1.0f : -1.0f); });
  filled([](int i) { return 3e38f / static_cast<float>(i + 1); });
  filled([](int i) { return i == 0 ? 127.0f : static_cast<float>(i) + 0.5f; });  // ties
  filled([](int i) { return i == 0 ? -127.0f : -static_cast<float>(i) - 0.5f; });
  filled([&](int i) { return i == 9 ? inf : 1.0f; });
  filled([&](int i) { return i == 30 ? -inf : 1.0f; });
  filled([&](int i) { return i == 3 ? nan : static_cast<float>(i); });
  filled([&](int i) { return i == 20 ? -nan : inf; });
  std::mt19937 rng(5);
  std::normal_distribution<float> value(0.0f, 1.0f);
  for (int n = 0; n < 200; ++n) filled([&](int) { return value(rng) * std::ldexp(1.0f, n - 100); });
  return groups;
}

TEST(QuantizeRows, EveryIsaGivesTheSameBits) {
  for (const std::vector<float>& g : awkward_groups()) {
    const Quantised expected = quantise(Isa::kScalar, g);
    for (Isa isa : runnable_isas()) {
      const Quantised got = quantise(isa, g);
      EXPECT_EQ(got.q, expected.q) << isa_name(isa);
      EXPECT_EQ(std::memcmp(&got.d[0], &expected.d[0], 4), 0) << isa_name(isa) << " " << got.d[0];
      EXPECT_EQ(std::memcmp(&got.ds[0], &expected.ds[0], 4), 0) << isa_name(isa) << " " << got.ds[0];
      EXPECT_EQ(got.nsum, expected.nsum) << isa_name(isa);
      EXPECT_EQ(got.nsum16, expected.nsum16) << isa_name(isa);
    }
  }
}

TEST(QuantizeRows, FollowsItsDefinition) {
  for (const std::vector<float>& g : awkward_groups()) {
    const Quantised got = quantise(Isa::kScalar, g);
    float largest = 0;
    for (float x : g)
      largest = std::isnan(x) || std::isnan(largest) ? std::nanf("") : std::fmax(largest, std::fabs(x));
    int32_t sums[2] = {0, 0};
    for (int i = 0; i < 32; ++i) {
      sums[i / 16] += got.q[i];
      EXPECT_GE(got.q[i], -127);
      if (!std::isfinite(largest) || largest == 0) {
        EXPECT_EQ(got.q[i], 0);
      } else if (largest > 1e-30f) {
        EXPECT_EQ(got.q[i], static_cast<int>(std::nearbyint(g[i] * (1.0f / (largest / 127.0f)))));
      }
    }
    EXPECT_EQ(std::isnan(got.d[0]), std::isnan(largest));
    if (!std::isnan(largest)) {
      EXPECT_EQ(got.d[0], largest / 127.0f);
    }
    EXPECT_EQ(got.nsum[0], -(sums[0] + sums[1]));
    EXPECT_EQ(got.nsum16[0], -sums[0]);
    EXPECT_EQ(got.nsum16[1], -sums[1]);
  }
}

// A NaN or an infinity must reach the logits of its row, and only of its row.
TEST(QuantizeRows, NanAndInfinityReachTheOutputs) {
  const TestMatrix t = make_matrix(DType::kQ8_0, 16, 64);
  TestRows x = make_rows(2, 64);
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    x.x[40] = bad;
    for (Isa isa : runnable_isas()) {
      kernel_table(isa).quantize_rows(x.x.data(), 64, 2, 64, x.q, 0);
      const std::vector<float> y = run(isa, {t.m, x, 2});
      for (int c = 0; c < 16; ++c) {
        EXPECT_TRUE(std::isnan(y[c]));
        EXPECT_TRUE(std::isfinite(y[16 + c]));
      }
    }
  }
}

TEST(QuantizeRows, WritesOnlyTheRowsAskedFor) {
  const uint32_t k = 96;
  const TestRows all = make_rows(7, k);
  for (Isa isa : runnable_isas()) {
    AlignedBuffer memory(quant_rows_bytes(7, k));
    const QuantRows q = carve_quant_rows(memory.data(), 7, k);
    kernel_table(isa).quantize_rows(all.x.data() + 2 * k, k, 3, k, q, 2);
    kernel_table(isa).quantize_rows(all.x.data(), k, 2, k, q, 0);
    kernel_table(isa).quantize_rows(all.x.data() + 5 * k, k, 2, k, q, 5);
    EXPECT_EQ(std::memcmp(memory.data(), all.memory.data(), quant_rows_bytes(7, k)), 0) << isa_name(isa);
  }
}

// Workers quantise the columns they computed: a range of columns, written by advancing the target's pointers.
TEST(QuantizeRows, ColumnRangesMakeUpWholeRows) {
  const uint32_t rows = 5, k = 288;
  const TestRows all = make_rows(rows, k);
  for (Isa isa : runnable_isas()) {
    AlignedBuffer memory(quant_rows_bytes(rows, k));
    const QuantRows whole = carve_quant_rows(memory.data(), rows, k);
    for (uint32_t begin = 0; begin < k; begin += 96) {
      const QuantRows part = advance_groups(whole, begin / kGroup);
      kernel_table(isa).quantize_rows(all.x.data() + begin, k, 2, 96, part, 0);
      kernel_table(isa).quantize_rows(all.x.data() + 2 * k + begin, k, rows - 2, 96, part, 2);
    }
    EXPECT_EQ(std::memcmp(memory.data(), all.memory.data(), quant_rows_bytes(rows, k)), 0) << isa_name(isa);
  }
}

}  // namespace
}  // namespace kvasir
