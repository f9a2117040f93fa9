#pragma once

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "base/aligned_buffer.h"
#include "kernels/isa/test_variants.h"
#include "kernels/kernel_test_util.h"
#include "kernels/quant_codec.h"
#include "kernels/table.h"

// Shared by the tests of linear layers and of quantisation.
namespace kvasir {

// Where a storage block keeps its f16 fields.
inline std::vector<size_t> half_fields(DType type) {
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
inline std::vector<std::byte> random_weights(DType type, uint32_t n, uint32_t k, uint32_t seed) {
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

inline TestMatrix make_matrix(DType type, uint32_t n, uint32_t k, uint32_t seed = 1) {
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

inline TestRows make_rows(uint32_t rows, uint32_t k, uint32_t seed = 2) {
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
inline QuantRows row_of(const QuantRows& q, uint32_t r) {
  return advance_groups(q, size_t{r} * (q.k / kGroup));
}

// A linear kernel under test, of an instruction set's table or built for the tests.
struct LinearKernel {
  std::string name;
  void (*linear)(const LinearArgs& args);
};

inline std::vector<LinearKernel> runnable_kernels() {
  std::vector<LinearKernel> kernels;
  for (const Isa isa : runnable_isas())
    kernels.push_back({std::string(isa_name(isa)), kernel_table(isa).linear});
#if defined(__x86_64__)
  if (isa_supported(Isa::kAvx2)) kernels.push_back({"avx-vnni by sums", avxvnni::linear_soft});
  if (isa_supported(Isa::kAvx512Vnni)) {
    kernels.push_back({"avx-vnni by EVEX encodings", avxvnni::linear_evex});
    kernels.push_back({"amx-int8 by loops", amx::linear_soft_tiles});
  }
#endif
  return kernels;
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
inline std::vector<float> run(const LinearKernel& kernel, const Product& p,
                              const std::vector<uint32_t>& cuts = {}) {
  const AlignedBuffer scratch(kLinearScratchBytes);
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
    kernel.linear(a);
  }
  std::vector<float> dense(size_t{p.rows} * p.w.n);
  for (uint32_t r = 0; r < p.rows; ++r) {
    std::memcpy(&dense[size_t{r} * p.w.n], &out[r * ldo], p.w.n * sizeof(float));
    for (size_t c = p.w.n; c < ldo; ++c) EXPECT_EQ(out[r * ldo + c], -7.0f);
  }
  return dense;
}

inline std::vector<float> run(Isa isa, const Product& p) {
  return run(LinearKernel{std::string(isa_name(isa)), kernel_table(isa).linear}, p);
}

inline void expect_same_bits(const std::vector<float>& expected, const std::vector<float>& got,
                             const std::string& what) {
  ASSERT_EQ(expected.size(), got.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_EQ(std::memcmp(&expected[i], &got[i], sizeof(float)), 0)
        << what << ": element " << i << " is " << got[i] << ", not " << expected[i];
}

}  // namespace kvasir
