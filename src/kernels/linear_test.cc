#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "kernels/quant_codec.h"
#include "kernels/table.h"

namespace kvasir {
namespace {

std::vector<Isa> supported_isas() {
  std::vector<Isa> out;
  for (Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvx512Vnni})
    if (isa_supported(isa)) out.push_back(isa);
  return out;
}

// Where a storage block keeps its f16 fields.
std::vector<size_t> half_fields(DType type) {
  switch (type) {
    case DType::kQ4_0:
    case DType::kQ5_0:
    case DType::kQ8_0:
    case DType::kIQ4_NL:
      return {0};
    case DType::kQ4_1:
    case DType::kQ5_1:
    case DType::kQ4_K:
    case DType::kQ5_K:
      return {0, 2};
    case DType::kQ2_K:
      return {80, 82};
    case DType::kQ3_K:
      return {108};
    case DType::kQ6_K:
      return {208};
    default:
      return {};
  }
}

// `n` rows of `k` GGUF values: every code and integer scale occurs; f16 scales of both signs, some subnormal
// or zero.
std::vector<std::byte> random_weights(DType type, uint32_t n, uint32_t k, uint32_t seed) {
  std::mt19937 rng(seed);
  const DTypeInfo& info = dtype_info(type);
  std::vector<std::byte> bytes(dtype_bytes(type, size_t{n} * k));
  for (std::byte& b : bytes) b = static_cast<std::byte>(rng());
  std::normal_distribution<float> scale(0.0f, 0.02f);
  const auto put = [](std::byte* at, auto value) { std::memcpy(at, &value, sizeof value); };
  for (size_t at = 0; at < bytes.size(); at += info.block_bytes) {
    for (size_t field : half_fields(type)) {
      const float value = rng() % 37 == 0 ? 0.0f : rng() % 41 == 0 ? 0x1.8p-20f : scale(rng);
      put(bytes.data() + at + field, float_to_half(value));
    }
    if (type == DType::kMXFP4)
      put(bytes.data() + at, static_cast<uint8_t>(rng() % 29 == 0 ? rng() % 3 : 112 + rng() % 12));
    if (type == DType::kF32) put(bytes.data() + at, scale(rng));
    if (type == DType::kF16) put(bytes.data() + at, float_to_half(scale(rng)));
    if (type == DType::kBF16) {
      const float value = scale(rng);
      uint32_t bits;
      std::memcpy(&bits, &value, sizeof bits);
      put(bytes.data() + at, static_cast<uint16_t>(bits >> 16));
    }
  }
  return bytes;
}

struct TestMatrix {
  std::vector<std::byte> gguf;
  AlignedBuffer packed;
  PackedMatrix m;
};

TestMatrix make_matrix(DType type, uint32_t n, uint32_t k, uint32_t seed = 1) {
  TestMatrix t;
  t.gguf = random_weights(type, n, k, seed);
  t.m.type = type;
  t.m.n = n;
  t.m.k = k;
  t.m.panel_bytes = packed_panel_bytes(type, k);
  t.packed = AlignedBuffer(t.m.panels() * t.m.panel_bytes);
  pack_panels(type, t.gguf.data(), n, k, 0, t.m.panels(), t.packed.data());
  t.m.data = t.packed.data();
  return t;
}

struct TestRows {
  std::vector<float> x;
  AlignedBuffer memory;
  QuantRows q;
};

TestRows make_rows(uint32_t rows, uint32_t k, uint32_t seed = 2) {
  std::mt19937 rng(seed);
  std::normal_distribution<float> value(0.0f, 1.0f);
  TestRows t;
  t.x.resize(size_t{rows} * k);
  for (float& x : t.x) x = rng() % 97 == 0 ? 20.0f * value(rng) : value(rng);
  t.memory = AlignedBuffer(quant_rows_bytes(rows, k));
  t.q = carve_quant_rows(t.memory.data(), rows, k);
  if (k % kGroup == 0) kernel_table(Isa::kScalar).quantize_rows(t.x.data(), k, rows, k, t.q, 0);
  return t;
}

// Row r of a set of rows, as a set of one row.
QuantRows row_of(const QuantRows& q, uint32_t r) {
  const size_t groups = q.k / kGroup;
  QuantRows out = q;
  out.q += size_t{r} * q.k;
  out.d += r * groups;
  out.ds += r * groups;
  out.nsum += r * groups;
  out.nsum16 += 2 * r * groups;
  return out;
}

struct Product {
  const PackedMatrix& w;
  const TestRows& x;
  uint32_t rows;
  const float* bias = nullptr;
  LinearOutput mode = LinearOutput::kStore;
  std::vector<float> initial = {};  // of out, for kAdd
};

// Runs a product over panel ranges cut at `cuts`, into rows padded by 5 columns that must stay untouched.
std::vector<float> run(Isa isa, const Product& p, const std::vector<uint32_t>& cuts = {}) {
  static AlignedBuffer scratch(kLinearScratchBytes);
  const size_t ldo = p.w.n + 5;
  std::vector<float> out(p.rows * ldo, -7.0f);
  for (uint32_t r = 0; r < p.rows && !p.initial.empty(); ++r)
    std::memcpy(&out[r * ldo], &p.initial[size_t{r} * p.w.n], p.w.n * sizeof(float));
  LinearArgs a{.w = &p.w,
               .x = &p.x.q,
               .xf = p.x.x.data(),
               .rows = p.rows,
               .out = out.data(),
               .ldo = ldo,
               .bias = p.bias,
               .mode = p.mode,
               .scratch = scratch.data()};
  for (size_t i = 0; i <= cuts.size(); ++i) {
    a.panel_begin = i == 0 ? 0 : cuts[i - 1];
    a.panel_end = i == cuts.size() ? p.w.panels() : cuts[i];
    kernel_table(isa).linear(a);
  }
  std::vector<float> dense(size_t{p.rows} * p.w.n);
  for (uint32_t r = 0; r < p.rows; ++r) {
    std::memcpy(&dense[size_t{r} * p.w.n], &out[r * ldo], p.w.n * sizeof(float));
    for (size_t c = p.w.n; c < ldo; ++c) EXPECT_EQ(out[r * ldo + c], -7.0f);
  }
  return dense;
}

void expect_same_bits(const std::vector<float>& expected, const std::vector<float>& got,
                      const std::string& what) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::memcmp(&expected[i], &got[i], sizeof(float)), 0)
        << what << ": element " << i << " is " << got[i] << ", not " << expected[i];
}

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
  const uint32_t most = 33;
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
    for (Isa isa : supported_isas())
      for (uint32_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 13, 16, 33}) {
        const std::vector<float> head(expected.begin(), expected.begin() + size_t{rows} * n);
        const std::string what = std::string(isa_name(isa)) + " rows " + std::to_string(rows) + " n " +
                                 std::to_string(n) + " k " + std::to_string(k);
        expect_same_bits(head, run(isa, {t.m, x, rows}), what);
      }
  }
}

TEST_P(LinearFormat, PanelRangesDoNotMatter) {
  const TestMatrix t = make_matrix(type(), 115, 512);
  for (uint32_t rows : {1u, 5u, 20u}) {
    const TestRows x = make_rows(rows, 512);
    for (Isa isa : supported_isas()) {
      const std::vector<float> whole = run(isa, {t.m, x, rows});
      for (const std::vector<uint32_t>& cuts :
           std::vector<std::vector<uint32_t>>{{1}, {2, 5}, {3, 3, 7}, {1, 2, 3, 4, 5, 6, 7}})
        expect_same_bits(whole, run(isa, {t.m, x, rows}, cuts), std::string(isa_name(isa)));
    }
  }
}

TEST_P(LinearFormat, BiasAndResidualAreOneAdditionEach) {
  const uint32_t n = 41;
  const TestMatrix t = make_matrix(type(), n, 256);
  for (uint32_t rows : {1u, 4u, 19u}) {
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
    for (Isa isa : supported_isas()) {
      expect_same_bits(with_bias, run(isa, {t.m, x, rows, bias.data()}), "bias");
      expect_same_bits(added, run(isa, {t.m, x, rows, nullptr, LinearOutput::kAdd, initial}), "residual");
      expect_same_bits(both, run(isa, {t.m, x, rows, bias.data(), LinearOutput::kAdd, initial}), "both");
    }
  }
}

TEST_P(LinearFormat, NameOfTheKernel) {
  for (Isa isa : supported_isas()) EXPECT_EQ(linear_kernel_name(isa, type()), isa_name(isa));
}

// Panels longer than the L1 cache, an odd number of them.
TEST(Linear, LongPanels) {
  for (DType type : {DType::kQ5_0, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K, DType::kQ3_K}) {
    const TestMatrix t = make_matrix(type, 70, 10240);
    const TestRows x = make_rows(1, 10240);
    const std::vector<float> expected = run(Isa::kScalar, {t.m, x, 1});
    for (Isa isa : supported_isas()) {
      expect_same_bits(expected, run(isa, {t.m, x, 1}), std::string(dtype_info(type).name));
      expect_same_bits(expected, run(isa, {t.m, x, 1}, {2}), std::string(dtype_info(type).name));
    }
  }
}

// More rows than any kernel keeps accumulators for at once.
TEST(Linear, ManyRowsAreCutWithoutTrace) {
  const uint32_t rows = 2100;
  const TestMatrix t = make_matrix(DType::kQ4_1, 48, 288);
  const TestRows x = make_rows(rows, 288);
  const std::vector<float> expected = run(Isa::kScalar, {t.m, x, rows});
  for (Isa isa : supported_isas())
    expect_same_bits(expected, run(isa, {t.m, x, rows}), std::string(isa_name(isa)));
}

TEST(Linear, ZeroRowsWriteNothing) {
  const TestMatrix t = make_matrix(DType::kQ8_0, 32, 64);
  const TestRows x = make_rows(1, 64);
  for (Isa isa : supported_isas()) EXPECT_TRUE(run(isa, {t.m, x, 0}).empty());
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
      TestRows x = make_rows(10, 256);
      for (size_t i = 0; i < x.x.size(); ++i)
        x.x[i] = i / 256 % 3 == 0 ? 127.0f : i / 256 % 3 == 1 ? -127.0f : i % 2 == 0 ? 127.0f : -127.0f;
      kernel_table(Isa::kScalar).quantize_rows(x.x.data(), 256, 10, 256, x.q, 0);
      std::vector<float> w(256);
      dequantize(info.type, t.gguf.data(), 256, w.data());
      double sum = 0;
      for (float v : w) sum += 127.0 * v;
      const std::vector<float> expected = run(Isa::kScalar, {t.m, x, 10});
      EXPECT_NEAR(expected[0], sum, 1e-6 * std::fabs(sum)) << info.name;
      for (Isa isa : supported_isas())
        for (uint32_t rows : {1u, 10u}) {
          const std::vector<float> head(expected.begin(), expected.begin() + rows * 32);
          expect_same_bits(head, run(isa, {t.m, x, rows}),
                           std::string(info.name) + " " + std::string(isa_name(isa)));
        }
    }
  }
}

// --- quantize_rows ---

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
    for (Isa isa : supported_isas()) {
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
    for (Isa isa : supported_isas()) {
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
  for (Isa isa : supported_isas()) {
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
  for (Isa isa : supported_isas()) {
    AlignedBuffer memory(quant_rows_bytes(rows, k));
    const QuantRows whole = carve_quant_rows(memory.data(), rows, k);
    for (uint32_t begin = 0; begin < k; begin += 96) {
      QuantRows part = whole;
      part.q += begin;
      part.d += begin / kGroup;
      part.ds += begin / kGroup;
      part.nsum += begin / kGroup;
      part.nsum16 += begin / (kGroup / 2);
      kernel_table(isa).quantize_rows(all.x.data() + begin, k, 2, 96, part, 0);
      kernel_table(isa).quantize_rows(all.x.data() + 2 * k + begin, k, rows - 2, 96, part, 2);
    }
    EXPECT_EQ(std::memcmp(memory.data(), all.memory.data(), quant_rows_bytes(rows, k)), 0) << isa_name(isa);
  }
}

}  // namespace
}  // namespace kvasir
