#include "models/attention_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <set>

#include "kernels/table.h"
#include "kvcache/kv_layout.h"

namespace kvasir {
namespace {

constexpr uint32_t kBlockSize = 32;

// A batch with tables of its own. Sequences get blocks that nobody has, but for prefixes they are told to
// share.
class TestBatch {
 public:
  // A sequence of `rows` rows from `position` on. Its first `shared` positions lie where `with` has them.
  void add(uint32_t position, uint32_t rows, uint32_t shared = 0, size_t with = 0) {
    std::vector<BlockId> table;
    for (uint32_t e = 0; e < (position + rows + kBlockSize - 1) / kBlockSize; ++e)
      table.push_back(e < shared / kBlockSize ? tables_[with][e] : BlockId{next_block_++});
    tables_.push_back(std::move(table));
    firsts_.push_back(static_cast<uint32_t>(positions_.size()));
    rows_.push_back(rows);
    for (uint32_t r = 0; r < rows; ++r) positions_.push_back(static_cast<int32_t>(position + r));
  }
  ForwardBatch batch() {
    pointers_.clear();
    sequences_.clear();
    for (const auto& table : tables_) pointers_.push_back(table.data());
    for (size_t s = 0; s < tables_.size(); ++s)
      sequences_.push_back({firsts_[s], rows_[s], {&pointers_[s], 1}});
    tokens_.assign(positions_.size(), 0);
    return {tokens_, positions_, sequences_, {}};
  }
  const std::vector<BlockId>& table(size_t s) const { return tables_[s]; }

 private:
  uint32_t next_block_ = 0;
  std::vector<std::vector<BlockId>> tables_;
  std::vector<uint32_t> firsts_, rows_;
  std::vector<int32_t> positions_;
  std::vector<TokenId> tokens_;
  std::vector<const BlockId*> pointers_;
  std::vector<ForwardBatch::Sequence> sequences_;
};

AttentionPlan::Shape shape(uint32_t threads, uint32_t window = 0) {
  return {.kv_heads = 3,
          .group = 3,
          .window = window,
          .threads = threads,
          .max_rows = 256,
          .max_partials = 20000};
}

// Splits of a unit that an item computes.
std::pair<uint32_t, uint32_t> splits(const AttentionPlan::Unit& unit, const AttentionPlan::Item& item) {
  return {std::max(unit.first_split, item.split_begin), std::min(unit.split_end, item.split_end)};
}

void check_item(const AttentionPlan& plan, const TestBatch& made, const ForwardBatch& batch,
                const AttentionPlan::Item& item) {
  uint32_t rows = 0;
  const auto units = plan.units().subspan(item.unit_begin, item.unit_count);
  for (const AttentionPlan::Unit& unit : units) {
    rows +=
        (unit.tokens * plan.shape().group + plan.shape().lanes - 1) / plan.shape().lanes * plan.shape().lanes;
    const auto [begin, end] = splits(unit, item);
    EXPECT_LT(begin, end) << "an item that does nothing for a unit";
    if (!item.partial) {
      EXPECT_EQ(begin, unit.first_split);
      EXPECT_EQ(end, unit.split_end);
      EXPECT_EQ(unit.pieces, 1u);
    }
    EXPECT_LE(item.shared, unit.first_position);
    for (uint32_t e = 0; e < item.shared / kBlockSize; ++e)
      ASSERT_EQ(made.table(unit.sequence)[e], made.table(units[0].sequence)[e]);
    if (item.shared != 0) {
      EXPECT_EQ(first_visible(plan.shape().window, unit.first_position + unit.tokens - 1), 0u);
    }
  }
  EXPECT_EQ(item.shared % kAttnChunk, 0u);
  EXPECT_LE(rows, plan.shape().call_rows);
  EXPECT_FALSE(batch.sequences.empty());
}

// Every row is in one unit, every split of a unit in one item per KV head, and places for partial results do
// not overlap.
void check(const AttentionPlan& plan, const TestBatch& made, const ForwardBatch& batch) {
  std::vector<uint32_t> rows(batch.positions.size(), 0);
  for (const AttentionPlan::Unit& unit : plan.units()) {
    EXPECT_EQ(static_cast<int32_t>(unit.first_position), batch.positions[unit.first_row]);
    for (uint32_t r = 0; r < unit.tokens; ++r) ++rows[unit.first_row + r];
  }
  EXPECT_TRUE(std::all_of(rows.begin(), rows.end(), [](uint32_t n) { return n == 1; }));

  const uint32_t heads = plan.shape().kv_heads, group = plan.shape().group;
  std::vector<std::vector<uint32_t>> done(plan.units().size() * heads);
  std::vector<uint32_t> pieces(done.size(), 0);
  std::set<uint32_t> partials;
  for (const AttentionPlan::Item& item : plan.items()) {
    check_item(plan, made, batch, item);
    for (uint32_t u = item.unit_begin; u < item.unit_begin + item.unit_count; ++u) {
      const AttentionPlan::Unit& unit = plan.units()[u];
      const auto [begin, end] = splits(unit, item);
      ++pieces[u * heads + item.kv_head];
      for (uint32_t s = begin; s < end; ++s) {
        done[u * heads + item.kv_head].push_back(s);
        for (uint32_t r = 0; item.partial && r < unit.tokens * group; ++r) {
          const uint32_t at = plan.partials_of(unit, item.kv_head, r) + s - unit.first_split;
          EXPECT_LT(at, plan.shape().max_partials);
          EXPECT_TRUE(partials.insert(at).second) << "two results in one place";
        }
      }
    }
  }
  for (size_t i = 0; i < done.size(); ++i) {
    const AttentionPlan::Unit& unit = plan.units()[i / heads];
    std::sort(done[i].begin(), done[i].end());
    std::vector<uint32_t> want;
    for (uint32_t s = unit.first_split; s < unit.split_end; ++s) want.push_back(s);
    EXPECT_EQ(done[i], want);
    EXPECT_EQ(pieces[i], unit.pieces);
  }
}

AttentionPlan planned(TestBatch& made, const AttentionPlan::Shape& s) {
  AttentionPlan plan(s);
  const ForwardBatch batch = made.batch();
  plan.plan(batch, 0, 1, kBlockSize);
  check(plan, made, batch);
  return plan;
}

TEST(AttentionPlan, OneLongDecodeIsCutForSeveralThreadsOnly) {
  TestBatch made;
  made.add(20000, 1);
  EXPECT_EQ(planned(made, shape(1)).items().size(), 3u);
  const AttentionPlan two = planned(made, shape(2));
  EXPECT_GE(two.items().size(), 12u);
  EXPECT_TRUE(two.items()[0].partial);
  EXPECT_GE(planned(made, shape(16)).items().size(), 48u);
}

TEST(AttentionPlan, ManyShortDecodesAreNotCut) {
  TestBatch made;
  for (uint32_t s = 0; s < 32; ++s) made.add(300 + s, 1);
  const AttentionPlan plan = planned(made, shape(2));
  EXPECT_EQ(plan.items().size(), 96u);
  for (const AttentionPlan::Item& item : plan.items()) EXPECT_FALSE(item.partial);
}

TEST(AttentionPlan, SharedPrefixIsReadOnce) {
  TestBatch made;
  made.add(2100, 1);
  for (uint32_t s = 1; s < 16; ++s) made.add(2100 + 7 * s, 1, 2048);
  const AttentionPlan plan = planned(made, shape(1));
  ASSERT_EQ(plan.items().size(), 3u);
  EXPECT_EQ(plan.items()[0].unit_count, 16u);
  EXPECT_EQ(plan.items()[0].shared, 2048u);
  // Enough items for more threads, all sequences still together.
  uint64_t together = 0;
  const AttentionPlan two = planned(made, shape(2));
  for (const AttentionPlan::Item& item : two.items()) together += item.unit_count == 16;
  EXPECT_GE(together, 6u);
  EXPECT_GE(planned(made, shape(8)).items().size(), 24u);
}

TEST(AttentionPlan, SharesWhatAllSeeAndNothingMore) {
  TestBatch made;
  made.add(500, 1);
  made.add(500, 2, 160);  // five blocks: two chunks and a half
  made.add(130, 1, 128);
  made.add(100, 1, 32);  // half a chunk
  made.add(90, 1);       // another text
  made.add(700, 17, 320);
  const AttentionPlan plan = planned(made, shape(1));
  std::multiset<uint32_t> shared;
  for (const AttentionPlan::Item& item : plan.items())
    if (item.kv_head == 0) shared.insert(item.shared);
  EXPECT_EQ(shared, (std::multiset<uint32_t>{0, 0, 0, 128}));
}

TEST(AttentionPlan, AWindowThatLeavesSomethingOutSharesNothing) {
  TestBatch made;
  made.add(2100, 1);
  made.add(2200, 1, 2048);
  made.add(400, 1, 320);
  made.add(430, 1, 320);
  const AttentionPlan plan = planned(made, shape(2, 512));
  uint32_t sharing = 0;
  for (const AttentionPlan::Item& item : plan.items()) {
    if (item.shared == 0) continue;
    ++sharing;
    EXPECT_LT(plan.units()[item.unit_begin].first_position, 512u);
  }
  EXPECT_GT(sharing, 0u);
}

TEST(AttentionPlan, WithoutRoomForPartialResultsNothingIsCut) {
  TestBatch made;
  made.add(20000, 1);
  AttentionPlan::Shape tight = shape(2);
  tight.max_partials = 3 * 3 * 20 - 1;
  EXPECT_EQ(planned(made, tight).items().size(), 3u);
  tight.max_partials = 3 * 3 * 20;
  EXPECT_GT(planned(made, tight).items().size(), 3u);
}

TEST(AttentionPlan, RandomBatchesAreCoveredOnce) {
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    TestBatch made;
    const uint32_t count = 1 + random() % 20;
    uint32_t rows = 0;
    std::vector<uint32_t> lengths;
    for (uint32_t s = 0; s < count; ++s) {
      const size_t with = s == 0 ? 0 : random() % s;
      const uint32_t most = s == 0 || random() % 3 == 0 ? 0 : lengths[with] / kBlockSize * kBlockSize;
      const uint32_t shared = most == 0 ? 0 : random() % (most / kBlockSize + 1) * kBlockSize;
      const uint32_t position = shared + random() % (random() % 4 == 0 ? 9000 : 300);
      const uint32_t n = std::min<uint32_t>(256 - rows, random() % 3 == 0 ? 1 + random() % 120 : 1);
      if (n == 0) break;
      rows += n;
      made.add(position, n, shared, with);
      lengths.push_back(position);
    }
    AttentionPlan::Shape s = shape(1 + random() % 9, random() % 3 == 0 ? 700 : 0);
    if (random() % 4 == 0) s.max_partials = 500;
    if (i % 3 == 2) {  // latent rows: one KV head, sequences in sixteens
      s.kv_heads = 1;
      s.group = 1 + random() % 40;
      s.call_rows = kLatentMaxRows;
      s.lanes = kLatentLanes;
    }
    planned(made, s);
    if (testing::Test::HasFailure()) FAIL() << "batch " << i;
  }
}

}  // namespace
}  // namespace kvasir
