// Calls for several sequences and calls for some splits: the bits of one scalar call per sequence.

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/attention_test_util.h"

namespace kvasir {
namespace {

class AttentionCascade : public testing::TestWithParam<AttentionParam> {};

INSTANTIATE_TEST_SUITE_P(Isas, AttentionCascade, testing::ValuesIn(attention_params()), attention_test_name);

// Sequences that begin with the same blocks: all of them in one pool, their tables begin with the blocks of
// the first `shared` positions and go on with blocks of their own.
class Family {
 public:
  // `own` tokens of each sequence follow `shared`, a multiple of the block size.
  Family(TestKv& kv, uint32_t shared, const std::vector<uint32_t>& own) {
    const uint32_t size = kv.planes().block_size;
    uint32_t next = shared / size * kv.units();
    for (const uint32_t tokens : own) {
      std::vector<BlockId> table(kv.table(), kv.table() + shared / size * kv.units());
      const uint32_t ids = (tokens + size - 1) / size * kv.units();
      table.insert(table.end(), kv.table() + next, kv.table() + next + ids);
      next += ids;
      tables_.push_back(std::move(table));
    }
  }
  static uint32_t pool_tokens(uint32_t block_size, uint32_t shared, const std::vector<uint32_t>& own) {
    uint32_t tokens = shared;
    for (const uint32_t n : own) tokens += (n + block_size - 1) / block_size * block_size;
    return tokens;
  }
  const BlockId* table(size_t s) const { return tables_[s].data(); }
  size_t size() const { return tables_.size(); }

 private:
  std::vector<std::vector<BlockId>> tables_;
};

struct Case {
  uint32_t block_size = 32;
  uint32_t group = 3;
  uint32_t head_dim = 64;
  uint32_t units = 1;
  uint32_t prefix = 64;        // tokens in common, a multiple of the block size
  std::vector<uint32_t> own;   // tokens of each sequence after it
  std::vector<uint32_t> rows;  // of those, the last ones that are asked for
  std::vector<uint32_t> cuts;  // of splits; none: one call for all
  uint32_t window = 0;
  uint32_t latent = 0;  // of head_dim values; 0: K and V
};

void expect_equal(const AttentionParam& p, const Case& c, const std::string& what) {
  TestKv kv(p.type, Family::pool_tokens(c.block_size, c.prefix, c.own), c.block_size, c.latent == 0 ? 2 : 1,
            c.head_dim, c.units, c.latent);
  kv.write_all(91);
  const Family family(kv, c.prefix, c.own);
  const bool sunk = c.window == 0 && c.latent == 0;  // latent rows have no sinks
  const AttentionKnobs knobs{.kv_head = c.latent == 0 ? 1u : 0u,
                             .window = c.window,
                             .scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim)),
                             .sink = sunk ? 0.5f : AttentionKnobs{}.sink};
  TestRows all;
  std::vector<AttentionSequence> sequences;
  std::vector<float> want;
  for (size_t s = 0; s < family.size(); ++s) {
    const uint32_t end = c.prefix + c.own[s];
    const TestRows rows(end - c.rows[s], end, c.group, c.head_dim, 17 + static_cast<uint32_t>(s) * 5);
    TestCall alone(kv, rows, knobs, 0, rows.size());
    alone.sequence.blocks = family.table(s);
    alone.run(Isa::kScalar);
    want.insert(want.end(), alone.out.begin(), alone.out.end());
    sequences.push_back({family.table(s), static_cast<uint32_t>(rows.size())});
    all.positions.insert(all.positions.end(), rows.positions.begin(), rows.positions.end());
    all.q.insert(all.q.end(), rows.q.begin(), rows.q.end());
  }
  ASSERT_LE(all.size(), c.latent == 0 ? kAttnMaxRows : kLatentMaxRows);
  TestCall together(kv, all, knobs, 0, all.size());
  together.args.sequences = sequences.data();
  together.args.sequence_count = static_cast<uint32_t>(sequences.size());
  together.args.shared = c.window == 0 ? c.prefix / kAttnChunk * kAttnChunk : 0;
  c.cuts.empty() ? together.run(p.isa) : together.run_cut(p.isa, c.cuts);
  ASSERT_TRUE(same_bits(together.out, want)) << what;
}

// Every group size, head size and block size, decode and a few rows each, prefixes that end inside a split
// and at its end.
TEST_P(AttentionCascade, EqualsOneCallPerSequence) {
  std::mt19937 random(5);
  const auto pick = [&](std::initializer_list<uint32_t> of) { return *(of.begin() + random() % of.size()); };
  for (uint32_t i = 0; i < 24; ++i) {
    Case c;
    c.block_size = pick({16, 32, 64});
    c.group = 1 + i % 8;
    c.head_dim = pick({64, 64, 128, 256, 80});
    c.units = pick({1, 3});
    c.prefix = pick({64, 128, 192, 192, 960, 1024, 1088}) + pick({0, 0, 1}) * c.block_size;
    const uint32_t budget = kAttnMaxRows / c.group;
    for (uint32_t left = budget; left != 0 && c.own.size() < pick({2, 3, 5, 16});) {
      c.rows.push_back(std::min(left, pick({1, 1, 2, 5})));
      c.own.push_back(c.rows.back() + random() % pick({1, 40, 100}));
      left -= c.rows.back();
    }
    expect_equal(GetParam(), c, "case " + std::to_string(i));
  }
}

// The same over latent rows: tiles of sixteen rows, each sequence in tiles of its own.
TEST_P(AttentionCascade, LatentRowsEqualOneCallPerSequence) {
  std::mt19937 random(8);
  const auto pick = [&](std::initializer_list<uint32_t> of) { return *(of.begin() + random() % of.size()); };
  for (uint32_t i = 0; i < 16; ++i) {
    Case c;
    c.block_size = pick({16, 32, 64});
    c.group = pick({1, 4, 9, 16, 40});
    c.latent = pick({32, 64, 128});
    c.head_dim = c.latent + pick({16, 32, 64});
    c.units = pick({1, 3});
    c.prefix = pick({64, 192, 960, 1024});
    for (uint32_t left = kLatentMaxRows; c.own.size() < pick({2, 3, 5});) {
      c.rows.push_back(c.group < 40 ? pick({1, 1, 2}) : 1);
      c.own.push_back(c.rows.back() + random() % pick({1, 40, 100}));
      const uint32_t lanes = (c.rows.back() * c.group + 15) / 16 * 16;
      if (lanes > left) {
        c.rows.pop_back();
        c.own.pop_back();
        break;
      }
      left -= lanes;
    }
    if (i % 2 == 1) c.cuts = {0, 1, 3};
    expect_equal(GetParam(), c, "case " + std::to_string(i));
  }
}

TEST_P(AttentionCascade, SplitsMergeToTheBitsOfOneCall) {
  std::mt19937 random(6);
  const auto pick = [&](std::initializer_list<uint32_t> of) { return *(of.begin() + random() % of.size()); };
  for (uint32_t i = 0; i < 12; ++i) {
    Case c;
    c.block_size = pick({16, 32, 64});
    c.group = 1 + i % 8;
    c.head_dim = pick({64, 128});
    c.prefix = pick({1024, 1984, 2048});
    c.window = pick({0, 0, 0, 700, 1500});
    c.rows = {pick({1, 4}), 1};
    c.own = {c.rows[0] + pick({1, 100, 300}), 1 + pick({0, 30, 1100})};
    const uint32_t end = c.prefix + std::max(c.own[0], c.own[1]);
    const uint32_t least = c.prefix + std::min(c.own[0] - c.rows[0] + 1, c.own[1]);
    const uint32_t seen = c.window != 0 && least > c.window ? least - c.window : 0;
    c.cuts = {seen / kAttnSplit};
    while (c.cuts.back() * kAttnSplit < end) c.cuts.push_back(c.cuts.back() + pick({1, 1, 2}));
    expect_equal(GetParam(), c, "case " + std::to_string(i));
  }
}

// Sixteen sequences over one prefix beside each other in a call: none of them sees another's tokens.
TEST_P(AttentionCascade, NanInASequenceStaysThere) {
  const std::vector<uint32_t> own(16, 30);
  TestKv kv(GetParam().type, Family::pool_tokens(16, 128, own), 16, 1, 64);
  kv.write_all(3);
  const Family family(kv, 128, own);
  TestRows rows;
  std::vector<AttentionSequence> sequences;
  for (uint32_t s = 0; s < 16; ++s) {
    rows.add(157, s, 64, 4);
    sequences.push_back({family.table(s), 1});
  }
  const auto run = [&] {
    TestCall call(kv, rows, {}, 0, rows.size());
    call.args.sequences = sequences.data();
    call.args.sequence_count = 16;
    call.args.shared = 128;
    call.run(GetParam().isa);
    return call.out;
  };
  const std::vector<float> clean = run();
  kv.poison(128 + 5 * 32 + 20);  // a token of the sixth sequence
  const std::vector<float> got = run();
  for (size_t i = 0; i < got.size(); ++i) {
    if (i / 64 == 5)
      ASSERT_TRUE(std::isnan(got[i]));
    else
      ASSERT_TRUE(same_bits({&got[i], 1}, {&clean[i], 1})) << "sequence " << i / 64;
  }
}

}  // namespace
}  // namespace kvasir
