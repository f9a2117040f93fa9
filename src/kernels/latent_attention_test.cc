// Attention over latent rows: one row per token for all heads, whose beginning is V.

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "kernels/attention_test_util.h"

namespace kvasir {
namespace {

class LatentAttention : public testing::TestWithParam<AttentionParam> {};

INSTANTIATE_TEST_SUITE_P(Isas, LatentAttention, testing::ValuesIn(attention_params()), attention_test_name);

constexpr uint32_t kLatent = 64, kRotated = 32, kWidth = kLatent + kRotated;

// The query's rotated part as it meets keys as stored: for int8 by the definition of the natural
// Walsh-Hadamard transform, divided by its size.
double stored_query(const std::vector<float>& q, uint32_t d, KvType type) {
  if (type == KvType::kF16 || d < kLatent) return q[d];
  double sum = 0;
  for (uint32_t j = 0; j < kRotated; ++j)
    sum += std::popcount((d - kLatent) & j) % 2 == 0 ? q[kLatent + j] : -q[kLatent + j];
  return sum / kRotated;
}

// The softmax of one row in double precision, over rows as stored.
std::vector<double> exact_row(const TestKv& kv, const std::vector<float>& q, uint32_t position,
                              const AttentionKnobs& knobs) {
  const uint32_t first = knobs.window != 0 && position + 1 > knobs.window ? position + 1 - knobs.window : 0;
  std::vector<double> query(kWidth);
  for (uint32_t d = 0; d < kWidth; ++d) query[d] = stored_query(q, d, kv.planes().type);
  std::vector<double> scores;
  for (uint32_t t = first; t <= position; ++t) {
    double s = 0;
    for (uint32_t d = 0; d < kWidth; ++d) s += query[d] * kv.k(t, 0, d);
    s *= knobs.scale;
    scores.push_back(knobs.softcap == 0.0f ? s : knobs.softcap * std::tanh(s / knobs.softcap));
  }
  const double max = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  std::vector<double> out(kLatent);
  for (uint32_t t = first; t <= position; ++t) {
    const double weight = std::exp(scores[t - first] - max);
    sum += weight;
    for (uint32_t d = 0; d < kLatent; ++d) out[d] += weight * kv.v(t, 0, d);
  }
  for (double& o : out) o /= sum;
  return out;
}

TEST_P(LatentAttention, IsAccurate) {
  for (const uint32_t position : {0u, 1u, 15u, 63u, 64u, 200u, 1023u, 1024u, 2500u}) {
    for (const AttentionKnobs knobs : {AttentionKnobs{}, {.window = 100}, {.softcap = 5.0f}}) {
      TestKv kv(GetParam().type, position + 1, 32, 1, kWidth, 1, kLatent);
      kv.write_all(position);
      const TestRows rows(position, position + 1, 3, kWidth, 17);
      const std::vector<float> got = attend_all(GetParam().isa, kv, rows, knobs);
      for (size_t r = 0; r < rows.size(); ++r) {
        const std::vector<double> want = exact_row(kv, rows.q[r], position, knobs);
        for (uint32_t d = 0; d < kLatent; ++d)
          ASSERT_NEAR(got[r * kLatent + d], want[d], 2e-5) << position << ", " << d;
      }
    }
  }
}

// What is stored is within half a step of what was given, for latent and rotated key each by its own scale.
TEST_P(LatentAttention, StoresARowByTwoScales) {
  TestKv kv(GetParam().type, 16, 16, 1, kWidth, 1, kLatent);
  std::vector<float> row = normal_values(kWidth, 1.0f, 5);
  for (uint32_t d = kLatent; d < kWidth; ++d) row[d] *= 100.0f;
  kernel_table(GetParam().isa).store_kv(kv.planes(), 0, kv.block_of(3), 3, row.data(), nullptr);
  for (uint32_t d = 0; d < kLatent; ++d) ASSERT_NEAR(kv.k(3, 0, d), row[d], 0.02) << d;
  double energy = 0, stored = 0;  // a rotation of 32 values makes them sqrt(32) longer
  for (uint32_t d = kLatent; d < kWidth; ++d) {
    energy += static_cast<double>(row[d]) * row[d];
    stored += static_cast<double>(kv.k(3, 0, d)) * kv.k(3, 0, d);
  }
  EXPECT_NEAR(stored / energy, GetParam().type == KvType::kInt8 ? kRotated : 1, 0.1);
  TestKv want(GetParam().type, 16, 16, 1, kWidth, 1, kLatent);
  kernel_table(Isa::kScalar).store_kv(want.planes(), 0, want.block_of(3), 3, row.data(), nullptr);
  for (uint32_t d = 0; d < kWidth; ++d) ASSERT_EQ(kv.k(3, 0, d), want.k(3, 0, d)) << d;
}

TEST_P(LatentAttention, EqualsTheReferenceOnRandomShapes) {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<uint32_t> of) { return *(of.begin() + random() % of.size()); };
  for (int i = 0; i < 60; ++i) {
    const uint32_t latent = pick({16, 32, 64, 128, 256, 512});
    const uint32_t head_dim = latent + pick({16, 32, 64, 128});
    const uint32_t group = pick({1, 2, 4, 9, 16, 17, 40, 128});
    const uint32_t tokens = 1 + random() % std::min(12u, kLatentMaxRows / group);
    const uint32_t context = tokens + random() % pick({20, 70, 300, i < 20 ? 1300u : 200u});
    TestKv kv(GetParam().type, context, pick({16, 32, 64, 128}), 1, head_dim, pick({1, 3}), latent);
    const AttentionKnobs knobs{.window = pick({0, 0, 0, 1, 17, 64, 100}),
                               .softcap = pick({0, 0, 20}) * 1.0f,
                               .scale = 1.0f / std::sqrt(static_cast<float>(head_dim))};
    kv.write_all(random());
    const uint32_t first = context - tokens;
    if (knobs.window != 0 && first + 1 > knobs.window) kv.leave_window(first + 1 - knobs.window);
    const TestRows rows(first, context, group, head_dim, random(), pick({1, 8}) * 1.0f);
    const std::vector<float> want = attend_all(Isa::kScalar, kv, rows, knobs, kLatentMaxRows);
    ASSERT_TRUE(same_bits(attend_all(GetParam().isa, kv, rows, knobs, kLatentMaxRows), want))
        << "case " << i << ": context " << context << ", tokens " << tokens << ", group " << group
        << ", latent " << latent << " of " << head_dim << ", window " << knobs.window;
    for (const float v : want) ASSERT_TRUE(std::isfinite(v));
  }
}

// Scores of hundreds: weights underflow, maxima grow from chunk to chunk, sums are rescaled to zero and back.
TEST_P(LatentAttention, EqualsTheReferenceWhereWeightsUnderflow) {
  for (const float scale : {3.0f, 3000.0f}) {
    TestKv kv(GetParam().type, 1300, 16, 1, kWidth, 1, kLatent);
    kv.write_all(11);
    const TestRows rows(1280, 1300, 4, kWidth, 12);
    const std::vector<float> want = attend_all(Isa::kScalar, kv, rows, {.scale = scale});
    EXPECT_TRUE(same_bits(attend_all(GetParam().isa, kv, rows, {.scale = scale}), want));
    for (const float v : want) ASSERT_TRUE(std::isfinite(v));
  }
}

TEST_P(LatentAttention, RowsDoNotDependOnTheirCompany) {
  TestKv kv(GetParam().type, 1200, 32, 1, kWidth, 1, kLatent);
  kv.write_all(23);
  const TestRows rows(1000, 1040, 9, kWidth, 29);
  const std::vector<float> want = attend_all(GetParam().isa, kv, rows, {}, 1);
  for (const size_t per_call : {2, 7, 16, 33, 128})
    EXPECT_TRUE(same_bits(attend_all(GetParam().isa, kv, rows, {}, per_call), want)) << per_call;
}

// A token that is not seen may hold anything; one that is seen makes NaN of those who see it, and only them.
TEST_P(LatentAttention, NanIsSeenByThoseWhoSeeIt) {
  TestKv kv(GetParam().type, 100, 16, 1, kWidth, 1, kLatent);
  kv.write_all(31);
  const TestRows rows(90, 100, 3, kWidth, 37);
  const std::vector<float> clean = attend_all(GetParam().isa, kv, rows, {});
  kv.poison(95);
  const std::vector<float> got = attend_all(GetParam().isa, kv, rows, {});
  for (size_t i = 0; i < got.size(); ++i) {
    if (i / kLatent / 3 >= 5)
      ASSERT_TRUE(std::isnan(got[i])) << i;
    else
      ASSERT_TRUE(same_bits({&got[i], 1}, {&clean[i], 1})) << i;
  }
}

}  // namespace
}  // namespace kvasir
