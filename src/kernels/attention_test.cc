#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "kernels/attention_test_util.h"

namespace kvasir {
namespace {

class Attention : public testing::TestWithParam<AttentionParam> {};

INSTANTIATE_TEST_SUITE_P(Isas, Attention, testing::ValuesIn(attention_params()), attention_test_name);

// A query as it meets K as stored: for int8, of a head size that is a power of two, by the definition of the
// natural Walsh-Hadamard transform, divided by the size.
std::vector<double> stored_query(const std::vector<float>& q, KvType type) {
  if (type == KvType::kF16) return {q.begin(), q.end()};
  std::vector<double> out(q.size());
  for (uint32_t i = 0; i < q.size(); ++i) {
    for (uint32_t j = 0; j < q.size(); ++j) out[i] += std::popcount(i & j) % 2 == 0 ? q[j] : -q[j];
    out[i] /= static_cast<double>(q.size());
  }
  return out;
}

// The softmax of one row in double precision, over K and V as stored.
std::vector<double> exact_row(const TestKv& kv, const std::vector<float>& q, uint32_t position,
                              const AttentionKnobs& knobs, double sink) {
  const uint32_t head_dim = kv.planes().head_dim;
  const uint32_t first = knobs.window != 0 && position + 1 > knobs.window ? position + 1 - knobs.window : 0;
  const std::vector<double> query = stored_query(q, kv.planes().type);
  std::vector<double> scores;
  for (uint32_t t = first; t <= position; ++t) {
    double s = 0;
    for (uint32_t d = 0; d < head_dim; ++d) s += query[d] * kv.k(t, knobs.kv_head, d);
    s *= knobs.scale;
    scores.push_back(knobs.softcap == 0.0f ? s : knobs.softcap * std::tanh(s / knobs.softcap));
  }
  const double max = std::max(sink, *std::max_element(scores.begin(), scores.end()));
  double sum = std::exp(sink - max);
  std::vector<double> out(head_dim);
  for (uint32_t t = first; t <= position; ++t) {
    const double weight = std::exp(scores[t - first] - max);
    sum += weight;
    for (uint32_t d = 0; d < head_dim; ++d) out[d] += weight * kv.v(t, knobs.kv_head, d);
  }
  for (double& o : out) o /= sum;
  return out;
}

TEST_P(Attention, IsAccurate) {
  for (const uint32_t position : {0u, 1u, 15u, 63u, 64u, 200u, 1023u, 1024u, 1500u, 2999u}) {
    for (const AttentionKnobs knobs : {AttentionKnobs{},
                                       {.window = 100},
                                       {.softcap = 5.0f},
                                       {.scale = 1.5f},
                                       {.sink = 1.0f},
                                       {.sink = 50.0f}}) {
      TestKv kv(GetParam().type, position + 1, 32, 1, 64);
      kv.write_all(position);
      const TestRows rows(position, position + 1, 3, 64, 17);
      const std::vector<float> got = attend_all(GetParam().isa, kv, rows, knobs);
      for (size_t r = 0; r < rows.size(); ++r) {
        const std::vector<double> want = exact_row(kv, rows.q[r], position, knobs, sink_of(knobs, rows.q[r]));
        for (uint32_t d = 0; d < 64; ++d) ASSERT_NEAR(got[r * 64 + d], want[d], 2e-5) << position;
      }
    }
  }
}

TEST_P(Attention, EqualsTheReferenceOnRandomShapes) {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<uint32_t> of) { return *(of.begin() + random() % of.size()); };
  for (int i = 0; i < 80; ++i) {
    const uint32_t head_dim = pick({16, 32, 48, 64, 64, 80, 96, 128, 144, 192, 256});
    const uint32_t group = pick({1, 2, 3, 4, 6, 7, 8});
    const uint32_t tokens = 1 + random() % std::min(12u, kAttnMaxRows / group);
    const uint32_t context = tokens + random() % pick({20, 70, 300, 1300});
    const uint32_t heads = pick({1, 2, 3});
    TestKv kv(GetParam().type, context, pick({16, 32, 64, 128}), heads, head_dim, pick({1, 3}));
    const AttentionKnobs knobs{.kv_head = heads - 1,
                               .window = pick({0, 0, 1, 5, 16, 17, 64, 100, 512, 4096}),
                               .softcap = pick({0, 0, 20}) * 1.0f,
                               .scale = 1.0f / std::sqrt(static_cast<float>(head_dim)),
                               .sink = pick({0, 1}) == 0 ? AttentionKnobs{}.sink : 0.5f};
    kv.write_all(random());
    const uint32_t first = context - tokens;
    if (knobs.window != 0 && first + 1 > knobs.window) kv.leave_window(first + 1 - knobs.window);
    const TestRows rows(first, context, group, head_dim, random(), pick({1, 8}) * 1.0f);
    const std::vector<float> want = attend_all(Isa::kScalar, kv, rows, knobs);
    ASSERT_TRUE(same_bits(attend_all(GetParam().isa, kv, rows, knobs), want))
        << "case " << i << ": context " << context << ", tokens " << tokens << ", group " << group
        << ", head_dim " << head_dim << ", window " << knobs.window;
    for (const float v : want) ASSERT_TRUE(std::isfinite(v));
  }
}

TEST_P(Attention, EqualsTheReferenceAtEveryContext) {
  TestKv kv(GetParam().type, 3000, 32, 1, 32);
  kv.write_all(3);
  for (uint32_t context = 1; context <= 3000; context += context < 200 ? 1 : 61) {
    const TestRows rows(context - 1, context, 2, 32, 5);
    ASSERT_TRUE(same_bits(attend_all(GetParam().isa, kv, rows, {}), attend_all(Isa::kScalar, kv, rows, {})))
        << context;
  }
}

// Scores of hundreds: weights underflow, maxima grow from chunk to chunk, sums are rescaled to zero and back.
TEST_P(Attention, EqualsTheReferenceWhereWeightsUnderflow) {
  for (const float scale : {3.0f, 30.0f, 3000.0f}) {
    TestKv kv(GetParam().type, 1300, 16, 1, 64);
    kv.write_all(11);
    const TestRows rows(1280, 1300, 4, 64, 12);
    const std::vector<float> want = attend_all(Isa::kScalar, kv, rows, {.scale = scale});
    EXPECT_TRUE(same_bits(attend_all(GetParam().isa, kv, rows, {.scale = scale}), want));
    for (const float v : want) ASSERT_TRUE(std::isfinite(v));
  }
}

TEST_P(Attention, RowsDoNotDependOnTheirCompany) {
  for (const uint32_t window : {0u, 40u}) {
    for (const uint32_t head_dim : {64u, 80u}) {
      TestKv kv(GetParam().type, 330, 32, 2, head_dim);
      kv.write_all(21);
      const TestRows rows(240, 330, 3, head_dim, 22);
      const AttentionKnobs knobs{.kv_head = 1, .window = window};
      const std::vector<float> alone = attend_all(GetParam().isa, kv, rows, knobs, 1);
      for (const size_t per_call : {2u, 5u, 6u, 7u, 13u, 96u}) {
        ASSERT_TRUE(same_bits(attend_all(GetParam().isa, kv, rows, knobs, per_call), alone)) << per_call;
      }
    }
  }
}

// Rows of one call may be far apart: no position is then common to a tile, and between them lie positions
// that nobody sees.
TEST_P(Attention, RowsFarApartShareACall) {
  TestKv kv(GetParam().type, 1500, 16, 1, 64);
  kv.write_all(31);
  TestRows rows;
  for (const uint32_t position : {0u, 3u, 40u, 41u, 63u, 64u, 300u, 1022u, 1024u, 1400u, 1499u, 1499u}) {
    rows.add(position, static_cast<uint32_t>(rows.size()), 64, 32);
  }
  for (const uint32_t window : {0u, 2u, 10u, 70u}) {
    const AttentionKnobs knobs{.window = window};
    const std::vector<float> alone = attend_all(GetParam().isa, kv, rows, knobs, 1);
    EXPECT_TRUE(same_bits(attend_all(GetParam().isa, kv, rows, knobs), alone)) << window;
    EXPECT_TRUE(same_bits(attend_all(Isa::kScalar, kv, rows, knobs), alone)) << window;
  }
}

// A prompt read in chunks, its later tokens not yet written, equals the prompt read at once.
TEST_P(Attention, PromptChunksDoNotMatter) {
  const uint32_t tokens = 150;
  const uint32_t group = 3;
  for (const uint32_t window : {0u, 20u}) {
    const TestRows rows(0, tokens, group, 64, 41);
    const AttentionKnobs knobs{.window = window};
    TestKv whole(GetParam().type, tokens, 32, 1, 64);
    whole.write_all(42);
    const std::vector<float> want = attend_all(GetParam().isa, whole, rows, knobs);
    for (uint32_t chunk = 1; chunk <= 9; ++chunk) {
      TestKv kv(GetParam().type, tokens, 32, 1, 64);
      std::vector<float> got;
      for (uint32_t begin = 0; begin < tokens; begin += chunk) {
        const uint32_t end = std::min(tokens, begin + chunk);
        for (uint32_t p = begin; p < end; ++p) kv.write(p, 42);
        if (window != 0 && begin + 1 > window) kv.leave_window(begin + 1 - window);
        const std::vector<float> part = attend(GetParam().isa, kv, rows, knobs, begin * group, end * group);
        got.insert(got.end(), part.begin(), part.end());
      }
      ASSERT_TRUE(same_bits(got, want)) << "chunk " << chunk << ", window " << window;
    }
  }
}

TEST_P(Attention, BlockSizeDoesNotMatter) {
  const TestRows rows(1080, 1100, 4, 64, 51);
  for (const uint32_t window : {0u, 100u}) {
    std::vector<float> want;
    for (const uint32_t block_size : {16u, 32u, 48u, 64u, 128u}) {
      TestKv kv(GetParam().type, 1100, block_size, 2, 64);
      kv.write_all(52);
      const std::vector<float> got = attend_all(GetParam().isa, kv, rows, {.kv_head = 1, .window = window});
      if (want.empty()) want = got;
      EXPECT_TRUE(same_bits(got, want)) << block_size;
    }
  }
}

// A later token of the same sequence whose K and V are NaN spoils its own rows and those after it, no others.
TEST_P(Attention, NanInATokenReachesOnlyRowsThatSeeIt) {
  TestKv kv(GetParam().type, 90, 16, 1, 64);
  kv.write_all(61);
  const TestRows rows(70, 90, 3, 64, 62);
  for (const uint32_t window : {0u, 6u}) {
    const AttentionKnobs knobs{.window = window};
    TestKv spoilt(GetParam().type, 90, 16, 1, 64);
    spoilt.write_all(61);
    spoilt.poison(77);
    const std::vector<float> clean = attend_all(GetParam().isa, kv, rows, knobs);
    const std::vector<float> got = attend_all(GetParam().isa, spoilt, rows, knobs);
    for (size_t r = 0; r < rows.size(); ++r) {
      const auto position = static_cast<uint32_t>(rows.positions[r]);
      const bool sees = position >= 77 && (window == 0 || position < 77 + window);
      for (uint32_t d = 0; d < 64; ++d) {
        if (sees) {
          ASSERT_TRUE(std::isnan(got[r * 64 + d])) << position;
        } else {
          ASSERT_TRUE(same_bits({&got[r * 64 + d], 1}, {&clean[r * 64 + d], 1})) << position;
        }
      }
    }
  }
}

}  // namespace
}  // namespace kvasir
