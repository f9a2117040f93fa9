// A short run of the simulator, and proof that it is one: scenarios repeat exactly, reach what they are meant
// to, and a fault that is planted is found.

#include <gtest/gtest.h>

#include "kv_contents.h"
#include "playground.h"

namespace kvasir::sim {
namespace {

// Sanitized builds are ten times as slow.
#ifdef KVASIR_DEBUG_CHECKS
constexpr uint64_t kSchedulerSeeds = 100, kEngineSeeds = 20;
#else
constexpr uint64_t kSchedulerSeeds = 1500, kEngineSeeds = 300;
#endif

Tally play_some(WorldKind kind, uint64_t seeds) {
  const Campaign campaign = play_seeds(kind, 0, [seeds](uint64_t played) { return played < seeds; });
  EXPECT_EQ(campaign.played, seeds);
  if (campaign.failure) ADD_FAILURE() << failure_text(kind, shrink(kind, *campaign.failure));
  return campaign.tally;
}

TEST(Simulation, SchedulerKeepsEveryInvariant) {
  const Tally t = play_some(WorldKind::kScheduler, kSchedulerSeeds);
  // What must be reached for that to mean something.
  for (const uint64_t happened : {t.preemptions, t.hit_tokens, t.partial_hits, t.copies, t.follows, t.forks,
                                  t.evictions, t.lent, t.overtakes, t.cancelled, t.finished})
    EXPECT_GT(happened, kSchedulerSeeds / 10);
}

TEST(Simulation, EngineKeepsEveryInvariant) {
  const Tally t = play_some(WorldKind::kEngine, kEngineSeeds);
  for (const uint64_t happened : {t.preemptions, t.hit_tokens, t.follows, t.cancelled, t.finished})
    EXPECT_GT(happened, kEngineSeeds / 4);
}

TEST(Simulation, ASeedIsTheSameEveryTime) {
  for (const WorldKind kind : {WorldKind::kScheduler, WorldKind::kEngine}) {
    for (const uint64_t seed : {3u, 4u, 5u}) {
      Tally a, b, c;
      ASSERT_TRUE(play(kind, make_scenario(kind, seed), &a).ok());
      ASSERT_TRUE(play(kind, make_scenario(kind, seed), &b).ok());
      ASSERT_TRUE(play(kind, make_scenario(kind, seed + 100), &c).ok());
      EXPECT_EQ(a.digest, b.digest);
      EXPECT_EQ(a.rows, b.rows);
      EXPECT_NE(a.digest, c.digest);
    }
  }
}

TEST(Simulation, ListsOfOperationsAreReadAsTheyAreWritten) {
  for (const std::vector<uint32_t>& list :
       {std::vector<uint32_t>{}, {0}, {0, 1, 2}, {0, 2, 3, 4, 9}, {5, 7}, {7, 8}}) {
    EXPECT_EQ(parse_list(list_text(list)), list) << list_text(list);
  }
  EXPECT_EQ(list_text({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
  for (const char* wrong : {"x", "1,", "3-1", "1-", "-2", "1;2", "1-99999999"})
    EXPECT_FALSE(parse_list(wrong).has_value() && std::string(wrong) != "1,") << wrong;
}

// The oracle itself, by hand: a block of tokens 0 to 15 and one of tokens 16 to 31 of one prefix.
class Contents : public testing::Test {
 protected:
  Contents() : pool_(4), cache_(layout_, pool_, {}), contents_(layout_, pool_) {}

  // Computes tokens 0 to n - 1, each token its position.
  Status compute(BlockTable& table, uint32_t n) {
    std::vector<BlockCopy> copies;
    EXPECT_TRUE(table.prepare(0, n, &copies));
    for (uint32_t p = 0; p < n; ++p) {
      tokens_.push_back(static_cast<TokenId>(p));
      values_.push_back(p == 0 ? first_value(0, 0) : next_value(values_.back(), static_cast<TokenId>(p)));
      KVASIR_RETURN_IF_ERROR(contents_.write(table, p, tokens_[p], values_[p]));
    }
    return {};
  }

  KvLayout layout_ = layout_of({});
  BlockPool pool_;
  PrefixCache cache_;
  KvContents contents_;
  std::vector<TokenId> tokens_;
  std::vector<uint64_t> values_;
};

TEST_F(Contents, FindsTheLongestPrefixThatIsThere) {
  BlockTable table(layout_, pool_, cache_, "", 64);
  ASSERT_TRUE(compute(table, 40).ok());
  EXPECT_EQ(KvContents::Index(contents_).longest(values_, 40), 0u);  // nothing is retained yet
  table.commit(tokens_, 40);
  ASSERT_TRUE(contents_.check_retained().ok());
  const KvContents::Index index(contents_);
  EXPECT_EQ(index.longest(values_, 40), 32u);
  EXPECT_EQ(index.longest(values_, 31), 31u);
  std::vector<uint64_t> other(values_);
  other[16] = next_value(values_[15], 99);
  for (size_t p = 17; p < other.size(); ++p) other[p] = next_value(other[p - 1], 1);
  EXPECT_EQ(index.longest(other, 40), 16u);
}

TEST_F(Contents, SeesAWriteToACachedBlock) {
  BlockTable table(layout_, pool_, cache_, "", 64);
  ASSERT_TRUE(compute(table, 16).ok());
  table.commit(tokens_, 16);
  const Status status = contents_.write(table, 3, 3, values_[3]);
  EXPECT_NE(status.message().find("is cached"), std::string::npos) << status.message();
}

TEST_F(Contents, SeesAWriteToASharedBlock) {
  BlockTable table(layout_, pool_, cache_, "", 64);
  ASSERT_TRUE(compute(table, 10).ok());
  const BlockTable other = table.fork();
  const Status status = contents_.write(table, 9, 9, values_[9]);
  EXPECT_NE(status.message().find("has 2 owners"), std::string::npos) << status.message();
}

TEST_F(Contents, SeesACopyThatWasNotMade) {
  BlockTable table(layout_, pool_, cache_, "", 64);
  ASSERT_TRUE(compute(table, 10).ok());
  BlockTable other = table.fork();
  std::vector<BlockCopy> copies;
  ASSERT_TRUE(other.prepare(10, 1, &copies));
  ASSERT_EQ(copies.size(), 1u);
  EXPECT_FALSE(contents_.read(other, 9, 1, values_).ok());
  contents_.copy(copies[0]);
  EXPECT_TRUE(contents_.read(other, 9, 1, values_).ok());
}

TEST_F(Contents, SeesABlockThatIsCachedBeforeItIsComputed) {
  BlockTable table(layout_, pool_, cache_, "", 64);
  ASSERT_TRUE(compute(table, 15).ok());
  tokens_.push_back(15);
  table.commit(tokens_, 16);
  EXPECT_FALSE(contents_.check_retained().ok());
}

}  // namespace
}  // namespace kvasir::sim
