#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/linear_test_util.h"

namespace kvasir {
namespace {

class LinearFormat : public testing::TestWithParam<DTypeInfo> {
 protected:
  DType type() const { return GetParam().type; }
  uint32_t block() const { return GetParam().block_elements; }
};

INSTANTIATE_TEST_SUITE_P(All, LinearFormat, testing::ValuesIn(dtype_table().begin(), dtype_table().end()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(LinearFormat, UnpacksToTheExactGgufValues) {
  for (uint32_t k : {256u, 768u, 896u, 32u, 7u}) {
    if (k % block() != 0) {
      EXPECT_FALSE(can_pack(type(), k));
      continue;
    }
    ASSERT_TRUE(can_pack(type(), k));
    const TestMatrix t = make_matrix(type(), 37, k);
    std::vector<float> expected(k);
    std::vector<float> got(k);
    for (uint32_t n = 0; n < 37; ++n) {
      dequantize(type(), t.gguf.data() + n * dtype_bytes(type(), k), k, expected.data());
      unpack_column(t.m, n, got.data());
      expect_same_bits(expected, got, "column " + std::to_string(n));
    }
  }
  EXPECT_FALSE(can_pack(type(), 0));
  EXPECT_FALSE(can_pack(type(), 0xFFFFFF00));
}

TEST_P(LinearFormat, PacksPanelsInAnyOrder) {
  const TestMatrix t = make_matrix(type(), 40, 256);
  AlignedBuffer other(t.m.panels() * t.m.panel_bytes);
  for (uint32_t p : {2u, 0u, 1u}) pack_panels(type(), t.gguf.data(), 40, 256, p, p + 1, other.data());
  EXPECT_EQ(std::memcmp(other.data(), t.packed.data(),
                        other.size() < t.packed.size() ? other.size() : t.packed.size()),
            0);
}

TEST_P(LinearFormat, TakesFewBitsPerWeight) {
  const double file = 8.0 * GetParam().block_bytes / block();
  EXPECT_LE(8.0 * static_cast<double>(packed_panel_bytes(type(), 1536)) / (16 * 1536), file * 1.06);
}

// The scalar product is the product of the decoded weights and decoded activations, within f32 rounding.
TEST_P(LinearFormat, ScalarIsNearTheDoublePrecisionProduct) {
  const uint32_t k = 768;
  const TestMatrix t = make_matrix(type(), 40, k);
  const TestRows x = make_rows(3, k);
  const std::vector<float> got = run(Isa::kScalar, {t.m, x, 3});
  const bool quantised = block() > 1;
  std::vector<float> w(k);
  for (uint32_t n = 0; n < 40; ++n) {
    dequantize(type(), t.gguf.data() + n * dtype_bytes(type(), k), k, w.data());
    for (uint32_t r = 0; r < 3; ++r) {
      double sum = 0;
      double size = 0;
      for (uint32_t i = 0; i < k; ++i) {
        const double a = quantised ? double{x.q.d[r * (k / kGroup) + i / kGroup]} * x.q.q[r * k + i]
                                   : double{x.x[r * k + i]};
        sum += a * w[i];
        size += std::fabs(a * w[i]);
      }
      EXPECT_NEAR(got[r * 40 + n], sum, 1e-5 * size + 1e-30) << "row " << r << ", output " << n;
    }
  }
}

// Every instruction set, number of rows and odd shape gives the bits of one row through the scalar reference.
TEST_P(LinearFormat, EveryIsaAndRowCountGivesTheSameBits) {
  const uint32_t most = 97;
  for (const auto& [n, k] : std::vector<std::pair<uint32_t, uint32_t>>{
           {48, 256}, {40, 512}, {17, 768}, {80, 896}, {33, 544}, {32, 32}}) {
    if (k % block() != 0) continue;
    const TestMatrix t = make_matrix(type(), n, k, n + k);
    const TestRows x = make_rows(most, k, n * k);
    std::vector<float> expected;
    for (uint32_t r = 0; r < most; ++r) {
      TestRows one;
      one.x.assign(x.x.begin() + size_t{r} * k, x.x.begin() + (size_t{r} + 1) * k);
      one.q = row_of(x.q, r);
      const std::vector<float> y = run(Isa::kScalar, {t.m, one, 1});
      expected.insert(expected.end(), y.begin(), y.end());
    }
    for (const LinearKernel& kernel : runnable_kernels())
      for (uint32_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 24, 33, 47, 64, 70, 97}) {
        const std::vector<float> head(expected.begin(), expected.begin() + size_t{rows} * n);
        const std::string what = kernel.name + " rows " + std::to_string(rows) + " n " + std::to_string(n) +
                                 " k " + std::to_string(k);
        expect_same_bits(head, run(kernel, {t.m, x, rows}), what);
      }
  }
}

TEST_P(LinearFormat, PanelRangesDoNotMatter) {
  const TestMatrix t = make_matrix(type(), 115, 512);
  for (uint32_t rows : {1u, 5u, 20u, 66u}) {
    const TestRows x = make_rows(rows, 512);
    for (const LinearKernel& kernel : runnable_kernels()) {
      const std::vector<float> whole = run(kernel, {t.m, x, rows});
      for (const std::vector<uint32_t>& cuts :
           std::vector<std::vector<uint32_t>>{{1}, {2, 5}, {3, 3, 7}, {1, 2, 3, 4, 5, 6, 7}})
        expect_same_bits(whole, run(kernel, {t.m, x, rows}, cuts), kernel.name);
    }
  }
}

TEST_P(LinearFormat, BiasAndResidualAreOneAdditionEach) {
  const uint32_t n = 41;
  const TestMatrix t = make_matrix(type(), n, 256);
  for (uint32_t rows : {1u, 4u, 19u, 67u}) {
    const TestRows x = make_rows(rows, 256);
    const std::vector<float> plain = run(Isa::kScalar, {t.m, x, rows});
    std::vector<float> bias(n);
    std::vector<float> initial(size_t{rows} * n);
    for (uint32_t i = 0; i < n; ++i) bias[i] = 0.37f * static_cast<float>(i) - 3.0f;
    for (size_t i = 0; i < initial.size(); ++i) initial[i] = 0.011f * static_cast<float>(i % 777);
    std::vector<float> with_bias = plain;
    std::vector<float> added = plain;
    std::vector<float> both = plain;
    for (size_t i = 0; i < plain.size(); ++i) {
      with_bias[i] = plain[i] + bias[i % n];
      added[i] = initial[i] + plain[i];
      both[i] = initial[i] + with_bias[i];
    }
    for (const LinearKernel& kernel : runnable_kernels()) {
      expect_same_bits(with_bias, run(kernel, {t.m, x, rows, bias.data()}), "bias");
      expect_same_bits(added, run(kernel, {t.m, x, rows, nullptr, LinearOutput::kAdd, initial}), "residual");
      expect_same_bits(both, run(kernel, {t.m, x, rows, bias.data(), LinearOutput::kAdd, initial}), "both");
    }
  }
}

TEST_P(LinearFormat, NameOfTheKernel) {
  for (Isa isa : runnable_isas()) EXPECT_EQ(linear_kernel_name(isa, type()), isa_name(isa));
}

// Panels longer than the L1 cache, an odd number of them.
TEST(Linear, LongPanels) {
  for (DType type : {DType::kQ5_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ3_K}) {
    const TestMatrix t = make_matrix(type, 70, 10240);
    const TestRows x = make_rows(1, 10240);
    const std::vector<float> expected = run(Isa::kScalar, {t.m, x, 1});
    for (const LinearKernel& kernel : runnable_kernels()) {
      expect_same_bits(expected, run(kernel, {t.m, x, 1}), std::string(dtype_info(type).name));
      expect_same_bits(expected, run(kernel, {t.m, x, 1}, {2}), std::string(dtype_info(type).name));
    }
  }
}

// More rows than any kernel keeps accumulators for at once.
TEST(Linear, ManyRowsAreCutWithoutTrace) {
  const uint32_t rows = 2100;
  const TestMatrix t = make_matrix(DType::kQ4_1, 48, 288);
  const TestRows x = make_rows(rows, 288);
  const std::vector<float> expected = run(Isa::kScalar, {t.m, x, rows});
  for (const LinearKernel& kernel : runnable_kernels())
    expect_same_bits(expected, run(kernel, {t.m, x, rows}), kernel.name);
}

// Rows a multiple of 4096 bytes apart share a set of the L1 cache: some kernels copy them first.
TEST(Linear, RowsThatShareACacheSet) {
  const uint32_t rows = 83;
  for (DType type : {DType::kQ4_1, DType::kQ6_K}) {
    const TestMatrix t = make_matrix(type, 40, 4096);
    const TestRows x = make_rows(rows, 4096);
    const std::vector<float> expected = run(Isa::kScalar, {t.m, x, rows});
    for (const LinearKernel& kernel : runnable_kernels())
      expect_same_bits(expected, run(kernel, {t.m, x, rows}), kernel.name);
  }
}

TEST(Linear, ZeroRowsWriteNothing) {
  const TestMatrix t = make_matrix(DType::kQ8_0, 32, 64);
  const TestRows x = make_rows(1, 64);
  for (const LinearKernel& kernel : runnable_kernels()) EXPECT_TRUE(run(kernel, {t.m, x, 0}).empty());
}

// Extreme codes and activations: the largest integer sums there can be.
TEST(Linear, NoIntegerSaturates) {
  for (const DTypeInfo& info : dtype_table()) {
    if (info.block_elements == 1) continue;
    TestMatrix t = make_matrix(info.type, 32, 256);
    for (int fill : {0x00, 0xFF, 0x7F, 0x80}) {
      std::memset(t.gguf.data(), fill, t.gguf.size());
      for (size_t at = 0; at < t.gguf.size(); at += info.block_bytes) {
        for (size_t field : half_fields(info.type)) {
          const uint16_t one = float_to_half(1.0f);
          std::memcpy(t.gguf.data() + at + field, &one, 2);
        }
        if (info.type == DType::kMXFP4) t.gguf[at] = std::byte{127};
      }
      pack_panels(info.type, t.gguf.data(), 32, 256, 0, 2, t.packed.data());
      TestRows x = make_rows(70, 256);
      for (size_t i = 0; i < x.x.size(); ++i)
        x.x[i] = i / 256 % 3 == 0 ? 127.0f : i / 256 % 3 == 1 ? -127.0f : i % 2 == 0 ? 127.0f : -127.0f;
      kernel_table(Isa::kScalar).quantize_rows(x.x.data(), 256, 70, 256, x.q, 0);
      std::vector<float> w(256);
      dequantize(info.type, t.gguf.data(), 256, w.data());
      double sum = 0;
      for (float v : w) sum += 127.0 * v;
      const std::vector<float> expected = run(Isa::kScalar, {t.m, x, 70});
      EXPECT_NEAR(expected[0], sum, 1e-6 * std::fabs(sum)) << info.name;
      for (const LinearKernel& kernel : runnable_kernels())
        for (uint32_t rows : {1u, 10u, 70u}) {
          const std::vector<float> head(expected.begin(), expected.begin() + rows * 32);
          expect_same_bits(head, run(kernel, {t.m, x, rows}), std::string(info.name) + " " + kernel.name);
        }
    }
  }
}

}  // namespace
}  // namespace kvasir
