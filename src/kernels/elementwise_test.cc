#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/aligned_buffer.h"
#include "kernels/kernel_test_util.h"
#include "kernels/quant_codec.h"
#include "kernels/table.h"

namespace kvasir {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kCanary = 1234.5f;  // stands behind every output; no kernel may touch it

std::vector<uint32_t> lengths() {
  std::vector<uint32_t> n(70);
  std::iota(n.begin(), n.end(), 1);
  for (const uint32_t more : {100u, 576u, 1000u, 1536u, 4099u}) n.push_back(more);
  return n;
}

class Elementwise : public testing::TestWithParam<Isa> {
 protected:
  const KernelTable& table() const { return kernel_table(GetParam()); }
  const KernelTable& reference() const { return kernel_table(Isa::kScalar); }

  // Runs f(table, y) for both tables on copies of `start` with a canary behind, and compares all bits.
  template <class F>
  void expect_equal(const std::vector<float>& start, F f) const {
    std::vector<float> want = start;
    want.insert(want.end(), 20, kCanary);
    std::vector<float> got = want;
    f(reference(), want.data());
    f(table(), got.data());
    EXPECT_TRUE(same_bits(got, want)) << "n = " << start.size();
    EXPECT_TRUE(std::all_of(got.end() - 20, got.end(), [](float v) { return v == kCanary; }));
  }
};

INSTANTIATE_TEST_SUITE_P(Isas, Elementwise, testing::ValuesIn(runnable_isas()), isa_test_name);

TEST_P(Elementwise, EqualsTheReferenceForEveryLength) {
  for (const uint32_t n : lengths()) {
    const std::vector<float> x = normal_values(n, 3.0f, n);
    const std::vector<float> w = normal_values(n, 1.0f, n + 1);
    const std::vector<float> zero(n);
    expect_equal(zero, [&](const KernelTable& t, float* y) { t.rms_norm(x.data(), w.data(), n, 1e-5f, y); });
    expect_equal(x, [&](const KernelTable& t, float* y) { t.rms_norm(y, w.data(), n, 1e-6f, y); });
    for (const float* bias : {static_cast<const float*>(nullptr), x.data()}) {
      expect_equal(
          zero, [&](const KernelTable& t, float* y) { t.layer_norm(x.data(), w.data(), bias, n, 1e-5f, y); });
      expect_equal(x, [&](const KernelTable& t, float* y) { t.layer_norm(y, w.data(), bias, n, 1e-6f, y); });
    }
    expect_equal(x, [&](const KernelTable& t, float* y) { t.add(w.data(), n, y); });
    expect_equal(x, [&](const KernelTable& t, float* y) { t.scale(0.3f, n, y); });
    expect_equal(x, [&](const KernelTable& t, float* y) { t.softcap(2.5f, n, y); });
    for (const Activation act : {Activation::kSilu, Activation::kGeluTanh, Activation::kClampedSwiglu}) {
      for (const float spread : {1.0f, 10.0f, 100.0f}) {
        const std::vector<float> gate = normal_values(n, spread, n + 2);
        expect_equal(zero,
                     [&](const KernelTable& t, float* y) { t.gated_act(act, gate.data(), x.data(), n, y); });
      }
    }
    EXPECT_EQ(table().argmax(x.data(), n), reference().argmax(x.data(), n));
    const float lse[] = {table().log_sum_exp(x.data(), n), reference().log_sum_exp(x.data(), n)};
    EXPECT_TRUE(same_bits({lse, 1}, {lse + 1, 1})) << n;
  }
}

TEST_P(Elementwise, RmsNormIsAccurate) {
  for (const uint32_t n : {7u, 576u, 4099u}) {
    const std::vector<float> x = normal_values(n, 5.0f, n);
    const std::vector<float> w = normal_values(n, 1.0f, n + 1);
    std::vector<float> y(n);
    table().rms_norm(x.data(), w.data(), n, 1e-5f, y.data());
    double squares = 0;
    for (const float v : x) squares += static_cast<double>(v) * v;
    for (uint32_t i = 0; i < n; ++i) {
      const double want = x[i] / std::sqrt(squares / n + 1e-5) * w[i];
      ASSERT_NEAR(y[i], want, 1e-6 * std::fabs(want));
    }
  }
}

// A mean far from zero, which a sum of squares less the squared mean would lose.
TEST_P(Elementwise, LayerNormIsAccurate) {
  for (const uint32_t n : {7u, 80u, 576u, 4099u}) {
    std::vector<float> x = normal_values(n, 0.5f, n);
    for (float& v : x) v += 100.0f;
    const std::vector<float> w = normal_values(n, 1.0f, n + 1);
    const std::vector<float> b = normal_values(n, 1.0f, n + 2);
    std::vector<float> plain(n), biased(n);
    table().layer_norm(x.data(), w.data(), nullptr, n, 1e-5f, plain.data());
    table().layer_norm(x.data(), w.data(), b.data(), n, 1e-5f, biased.data());
    const double mean = std::accumulate(x.begin(), x.end(), 0.0) / n;
    double squares = 0;
    for (const float v : x) squares += (v - mean) * (v - mean);
    for (uint32_t i = 0; i < n; ++i) {
      const double want = (x[i] - mean) / std::sqrt(squares / n + 1e-5) * w[i];
      ASSERT_NEAR(plain[i], want, 3e-5 * std::fabs(w[i]) + 1e-5 * std::fabs(want) + 2e-7);
      ASSERT_NEAR(biased[i], want + b[i], 3e-5 * std::fabs(w[i]) + 1e-5 * std::fabs(want) + 2e-7);
    }
  }
}

TEST_P(Elementwise, GatedActivationIsAccurate) {
  const std::vector<float> gate = normal_values(1000, 4.0f, 1);
  const std::vector<float> up = normal_values(1000, 2.0f, 2);
  std::vector<float> y(1000);
  table().gated_act(Activation::kSilu, gate.data(), up.data(), 1000, y.data());
  for (size_t i = 0; i < y.size(); ++i) {
    const double want = gate[i] / (1.0 + std::exp(-static_cast<double>(gate[i]))) * up[i];
    ASSERT_NEAR(y[i], want, 1e-6 * std::fabs(want));
  }
}

TEST_P(Elementwise, ClampedSwigluIsAccurate) {
  const std::vector<float> gate = normal_values(1000, 5.0f, 1);
  const std::vector<float> up = normal_values(1000, 5.0f, 2);
  std::vector<float> y(1000);
  table().gated_act(Activation::kClampedSwiglu, gate.data(), up.data(), 1000, y.data());
  for (size_t i = 0; i < y.size(); ++i) {
    const double g = std::min(gate[i], 7.0f), u = std::clamp(up[i], -7.0f, 7.0f);
    const double want = g / (1.0 + std::exp(-1.702 * g)) * (u + 1.0);
    ASSERT_NEAR(y[i], want, 2e-6 * std::fabs(want) + 1e-30);
  }
}

TEST_P(Elementwise, RopeRotatesPairsAndLeavesTheRest) {
  for (const RopeKind kind : {RopeKind::kNorm, RopeKind::kNeox}) {
    for (const uint32_t n_rot : {2u, 4u, 6u, 16u, 30u, 32u, 34u, 64u, 80u, 96u, 128u, 256u}) {
      const std::vector<float> head = normal_values(n_rot + 16, 2.0f, n_rot);
      std::vector<float> cos(n_rot / 2);
      std::vector<float> sin(n_rot / 2);
      for (uint32_t i = 0; i < n_rot / 2; ++i) {
        cos[i] = std::cos(0.7f * static_cast<float>(i) + 0.1f);
        sin[i] = std::sin(0.7f * static_cast<float>(i) + 0.1f);
      }
      const auto run = [&](const KernelTable& t, float* y) {
        t.rope(kind, y, n_rot, cos.data(), sin.data());
      };
      expect_equal(head, run);
      std::vector<float> got = head;
      run(table(), got.data());
      for (uint32_t i = 0; i < n_rot / 2; ++i) {
        const uint32_t a = kind == RopeKind::kNorm ? 2 * i : i;
        const uint32_t b = kind == RopeKind::kNorm ? 2 * i + 1 : i + n_rot / 2;
        const double c = cos[i];
        const double s = sin[i];
        ASSERT_NEAR(got[a], head[a] * c - head[b] * s, 1e-6);
        ASSERT_NEAR(got[b], head[a] * s + head[b] * c, 1e-6);
      }
      EXPECT_TRUE(same_bits(std::span(got).subspan(n_rot), std::span(head).subspan(n_rot)));
    }
  }
}

TEST_P(Elementwise, ArgmaxTakesTheLowestOfTies) {
  std::vector<float> x = normal_values(1003, 1.0f, 5);
  for (const uint32_t at : {1002u, 999u, 500u, 17u, 16u, 15u, 0u}) {
    x[at] = 50.0f;
    EXPECT_EQ(table().argmax(x.data(), 1003), at);
  }
  const float zeros[] = {-1.0f, -0.0f, 0.0f};
  EXPECT_EQ(table().argmax(zeros, 3), 1u);
}

TEST_P(Elementwise, ArgmaxNeverTakesNan) {
  for (const uint32_t n : {1u, 3u, 16u, 17u, 33u, 100u}) {
    std::vector<float> x(n, kNan);
    EXPECT_EQ(table().argmax(x.data(), n), 0u);
    x[n - 1] = -kInfinity;
    EXPECT_EQ(table().argmax(x.data(), n), n - 1);
    x[n / 2] = -5.0f;
    EXPECT_EQ(table().argmax(x.data(), n), n / 2);
    x[n / 3] = kInfinity;
    EXPECT_EQ(table().argmax(x.data(), n), n / 3);
  }
}

TEST_P(Elementwise, ScanFindsTheLargestAndWhatIsUnsound) {
  for (const uint32_t n : {1u, 3u, 16u, 17u, 33u, 1003u}) {
    std::vector<float> x = normal_values(n, 3.0f, n);
    x[n / 2] = -kInfinity;
    const LogitScan sound = table().scan_logits(x.data(), n);
    EXPECT_EQ(sound.largest, *std::max_element(x.begin(), x.end()));
    EXPECT_FALSE(sound.unsound) << n;
    for (const uint32_t at : {0u, n / 2, n - 1}) {
      for (const float bad : {kNan, -kNan, kInfinity}) {
        std::vector<float> y = x;
        y[at] = bad;
        EXPECT_TRUE(table().scan_logits(y.data(), n).unsound) << bad << " at " << at << " of " << n;
        EXPECT_EQ(table().scan_logits(y.data(), n).largest, reference().scan_logits(y.data(), n).largest);
      }
    }
  }
}

TEST_P(Elementwise, LogSumExpIsAccurate) {
  for (const uint32_t n : {1u, 15u, 1000u, 49152u}) {
    for (const float spread : {0.1f, 5.0f, 60.0f}) {
      const std::vector<float> x = normal_values(n, spread, n);
      const double max = *std::max_element(x.begin(), x.end());
      double sum = 0;
      for (const float v : x) sum += std::exp(v - max);
      const double want = std::log(sum) + max;
      EXPECT_NEAR(table().log_sum_exp(x.data(), n), want, 1e-6 * (1.0 + std::fabs(want)));
    }
  }
}

TEST_P(Elementwise, LogSumExpOfInfinitiesAndNan) {
  std::vector<float> x(37, -kInfinity);
  EXPECT_EQ(table().log_sum_exp(x.data(), 37), -kInfinity);
  x[20] = 3.0f;
  EXPECT_EQ(table().log_sum_exp(x.data(), 37), 3.0f);
  x[36] = kNan;
  EXPECT_TRUE(std::isnan(table().log_sum_exp(x.data(), 37)));
  x[36] = kInfinity;
  EXPECT_EQ(table().log_sum_exp(x.data(), 37), kInfinity);
}

TEST_P(Elementwise, StoreKvWritesItsSlotAndNothingElse) {
  for (const uint32_t head_dim : {16u, 64u, 80u, 256u}) {
    const uint32_t block_size = 32;
    const uint32_t heads = 2;
    const size_t plane = size_t{heads} * block_size * head_dim;
    const size_t stride = 2 * plane + 48;
    std::vector<float> k = normal_values(head_dim, 30.0f, head_dim);
    std::vector<float> v = normal_values(head_dim, 1e-6f, head_dim + 1);  // half subnormals
    k[3] = 1e6f;                                                          // infinite as a half
    k[5] = 2049.0f;                                                       // a tie: goes to even
    v[7] = -0.0f;
    for (const uint32_t slot : {0u, 5u, 16u, 31u}) {
      std::vector<uint16_t> memory(3 * stride, 0x7e01);
      std::vector<uint16_t> want = memory;
      const KvPlanes kv{.base = reinterpret_cast<std::byte*>(memory.data()),
                        .block_stride = 2 * stride,
                        .block_size = block_size,
                        .kv_heads = heads,
                        .head_dim = head_dim,
                        .v_offset = 2 * plane};
      table().store_kv(kv, 1, BlockId{2}, slot, k.data(), v.data());
      const size_t k_at = 2 * stride + block_size * head_dim + (slot / 16) * 16 * head_dim + slot % 16;
      const size_t v_at = 2 * stride + plane + (block_size + slot) * head_dim;
      for (uint32_t d = 0; d < head_dim; ++d) {
        want[k_at + d * 16] = float_to_half(k[d]);
        want[v_at + d] = float_to_half(v[d]);
      }
      EXPECT_EQ(memory, want) << head_dim << " " << slot;
    }
  }
}

// What the two scales and the values of an int8 slot must be, one operation at a time.
void quantize_head(const std::vector<float>& x, std::vector<int8_t>& q, float& scale) {
  q.assign(x.size(), 0);
  float largest = 0;
  for (const float v : x) {
    if (!std::isfinite(v)) {
      scale = kNan;
      return;
    }
    largest = std::max(largest, std::abs(v));
  }
  scale = largest / 127.0f;
  if (!std::isnormal(scale)) {
    scale = 0;
    return;
  }
  for (size_t i = 0; i < x.size(); ++i) q[i] = static_cast<int8_t>(std::nearbyint(x[i] * (1.0f / scale)));
}

// Butterflies of stride 1, 2, 4 ... in each block of a head that is a power of two of at least 32.
std::vector<float> rotated(std::vector<float> x) {
  const size_t block = x.size() & (0 - x.size());
  for (size_t stride = 1; block >= 32 && stride < block; stride *= 2) {
    const std::vector<float> before = x;
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = (i & stride) == 0 ? before[i] + before[i + stride] : before[i - stride] - before[i];
  }
  return x;
}

TEST_P(Elementwise, StoreKvQuantisesToInt8PerTokenAndHead) {
  constexpr uint32_t kBlockSize = 32, kHeads = 2;
  for (const uint32_t head_dim : {16u, 32u, 64u, 80u, 96u, 256u}) {
    const size_t plane = size_t{kHeads} * kBlockSize * head_dim;
    const size_t stride = 2 * plane + 2 * kHeads * kBlockSize * sizeof(float) + 64;
    for (uint32_t i = 0; i < 8; ++i) {
      std::vector<float> k = normal_values(head_dim, 30.0f, i);
      std::vector<float> v = normal_values(head_dim, 1e-6f, i + 100);
      if (i == 1) std::fill(k.begin(), k.end(), 0.0f);
      if (i == 2) std::fill(v.begin(), v.end(), -1e-39f);  // a scale below the normal numbers
      if (i == 3) k[head_dim - 1] = kInfinity;
      if (i == 4) v[5] = kNan;
      if (i == 5) k = std::vector<float>(head_dim, -3.0e38f);
      if (i == 6) {
        std::fill(v.begin(), v.end(), 63.5f);  // ties go to even
        v[0] = 127.0f;
        v[1] = -62.5f;
      }
      std::vector<std::byte> memory(3 * stride, std::byte{0x5a});
      std::vector<std::byte> want = memory;
      const KvPlanes kv{.base = memory.data(),
                        .block_stride = stride,
                        .block_size = kBlockSize,
                        .kv_heads = kHeads,
                        .head_dim = head_dim,
                        .type = KvType::kInt8,
                        .v_offset = plane,
                        .scale_offset = 2 * plane};
      const uint32_t slot = i * 4 + 1;
      table().store_kv(kv, 1, BlockId{2}, slot, k.data(), v.data());
      std::vector<int8_t> kq, vq;
      float scales[2];
      quantize_head(rotated(k), kq, scales[0]);
      quantize_head(v, vq, scales[1]);
      std::byte* block = want.data() + 2 * stride;
      for (uint32_t d = 0; d < head_dim; ++d) {
        block[kBlockSize * head_dim + (slot / 16 * head_dim + d) * 16 + slot % 16] =
            static_cast<std::byte>(kq[d]);
        block[plane + (kBlockSize + slot) * head_dim + d] = static_cast<std::byte>(vq[d]);
      }
      for (uint32_t s = 0; s < 2; ++s)
        std::memcpy(block + 2 * plane + ((s * kHeads + 1) * kBlockSize + slot) * 4, &scales[s], 4);
      EXPECT_TRUE(memory == want) << head_dim << " case " << i;
    }
  }
}

}  // namespace
}  // namespace kvasir
