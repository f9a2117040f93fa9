#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "models/causal_lm.h"
#include "models/own_matrix.h"
#include "models/tiny_model.h"

namespace kvasir {

// For tests of heads: a target of width 32 with 70 tokens, and matrices of which the floats are kept.
struct TestMatrix {
  uint32_t n = 0, k = 0;
  std::vector<float> values;

  TestMatrix(uint32_t outputs, uint32_t inputs, std::mt19937& rng, float scale = 0.3f)
      : n(outputs), k(inputs), values(size_t{outputs} * inputs) {
    std::uniform_real_distribution<float> draw(-scale, scale);
    for (float& v : values) v = draw(rng);
  }
  std::vector<double> times(const std::vector<double>& x) const {
    std::vector<double> y(n, 0.0);
    for (uint32_t i = 0; i < n; ++i) {
      for (uint32_t j = 0; j < k; ++j) y[i] += double{values[size_t{i} * k + j]} * x[j];
    }
    return y;
  }
  OwnMatrix packed() const { return OwnMatrix::q8_0(values, n, k); }
};

inline std::vector<float> test_vector(uint32_t n, std::mt19937& rng, float low, float high) {
  std::uniform_real_distribution<float> draw(low, high);
  std::vector<float> values(n);
  for (float& v : values) v = draw(rng);
  return values;
}

inline double silu_of(double x) {
  return x / (1 + std::exp(-x));
}

inline std::vector<double> rms_of(const std::vector<double>& x, const std::vector<float>& w, double eps) {
  double sum = 0;
  for (const double v : x) sum += v * v;
  const double scale = 1 / std::sqrt(sum / static_cast<double>(x.size()) + eps);
  std::vector<double> y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * double{w[i]};
  return y;
}

// Eight bits of weights and activations.
inline void expect_close(const float* got, const std::vector<double>& want, double tolerance) {
  double most = 0;
  for (const double w : want) most = std::max(most, std::fabs(w));
  for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance * most) << "value " << i;
}

class HeadsRig {
 public:
  explicit HeadsRig(uint32_t threads) : pool(threads), kernels(kernel_table(best_isa())) {
    const std::vector<std::byte> bytes =
        TinyModel{.tokens = 70, .rows = 70, .context = 512, .noisy = true}.bytes();
    const auto file = GgufFile::parse(bytes, "tiny");
    EXPECT_TRUE(file.ok()) << file.message();
    auto loaded = CausalLm::load(*file, kernels, pool, {.max_rows = 64, .max_logit_rows = 64});
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    target = std::move(loaded).value();
  }

  ThreadPool pool;
  const KernelTable& kernels;
  std::unique_ptr<CausalLm> target;
};

}  // namespace kvasir
