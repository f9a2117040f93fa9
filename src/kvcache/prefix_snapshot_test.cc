#include "kvcache/prefix_snapshot.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kvcache/kv_file_format.h"
#include "kvcache/kv_rig.h"

namespace kvasir {
namespace {

using testing::HasSubstr;

constexpr uint64_t kPlenty = uint64_t{1} << 40;

void fill(Kv& kv, const std::vector<TokenId>& tokens, const std::string& salt = "") {
  BlockTable t = kv.table(salt);
  const PrefixCache::Hit hit = kv.cache.lookup(t.salt(), tokens, static_cast<uint32_t>(tokens.size()));
  t.adopt(hit);
  const auto rows = static_cast<uint32_t>(tokens.size()) - hit.tokens;
  if (rows > 0) {
    ASSERT_TRUE(kv.compute(t, tokens, hit.tokens, rows));
  }
}

PrefixSnapshot snapshot_of(const Kv& kv, uint64_t max_bytes = kPlenty) {
  return take_snapshot(kv.layout, kv.pool, kv.cache, max_bytes);
}

// What a restart does: new blocks with the old contents.
uint32_t restore(const Kv& from, PrefixSnapshot snapshot, Kv& to, std::vector<bool> sound = {}) {
  sound.resize(snapshot.entries.size(), true);
  for (BlockId& id : snapshot.blocks) {
    const BlockId fresh = to.pool.take();
    std::copy_n(&from.slots[index_of(id) * kBlock], kBlock, &to.slots[index_of(fresh) * kBlock]);
    id = fresh;
  }
  return enter_snapshot(to.layout, snapshot, usable_entries(to.layout, snapshot, sound), to.pool, to.cache);
}

uint32_t hit(Kv& kv, const std::vector<TokenId>& tokens, const std::string& salt = "") {
  BlockTable t = kv.table(salt);
  const auto most = static_cast<uint32_t>(tokens.size()) - 1;
  const PrefixCache::Hit found = kv.cache.lookup(t.salt(), tokens, most);
  t.adopt(found);
  for (size_t g = 0; g < kv.layout.groups().size(); ++g) {  // what the next row sees is there and right
    const KvLayout::Group& group = kv.layout.groups()[g];
    for (uint32_t p = first_visible(group.window, found.tokens); p < found.tokens; ++p) {
      for (uint32_t u = 0; u < group.units; ++u) {
        const BlockId id = t.tables()[g][p / kBlock * group.units + u];
        EXPECT_EQ(kv.slots[index_of(id) * kBlock + p % kBlock], prefix_value(tokens, p)) << "position " << p;
      }
    }
  }
  return found.tokens;
}

TEST(PrefixSnapshot, AnotherPoolKnowsThePrefixesAgain) {
  Kv kv({0}, 40);
  fill(kv, text(100));
  fill(kv, text(50, 500));
  std::vector<TokenId> branch = text(100);
  branch[70] = 9999;
  fill(kv, branch);
  Kv other({0}, 60);
  const PrefixSnapshot snapshot = snapshot_of(kv);
  EXPECT_EQ(snapshot.entries.size(), 6u + 3 + 2);
  EXPECT_TRUE(check_snapshot(kv.layout, snapshot, 10000).ok());
  EXPECT_EQ(restore(kv, snapshot, other), 11u);
  other.check();
  EXPECT_EQ(other.pool.cached(), 11u);
  EXPECT_EQ(other.pool.owned(), 0u);
  EXPECT_EQ(hit(other, text(100)), 96u);
  EXPECT_EQ(hit(other, branch), 96u);
  EXPECT_EQ(hit(other, text(50, 500)), 48u);
  EXPECT_EQ(hit(other, text(50, 501)), 0u);
}

TEST(PrefixSnapshot, RunningSequencesFullBlocksAreInIt) {
  Kv kv({0}, 40);
  BlockTable t = kv.table();
  ASSERT_TRUE(kv.compute(t, text(40), 0, 40));
  EXPECT_EQ(snapshot_of(kv).entries.size(), 2u) << "the last block is not full";
  kv.check({&t});
}

TEST(PrefixSnapshot, SaltsStayApartAndAreNotInItInTheClear) {
  Kv kv({0}, 40);
  fill(kv, text(40), "alice's secret");
  fill(kv, text(40), "bob");
  fill(kv, text(60), "bob");
  const PrefixSnapshot snapshot = snapshot_of(kv);
  ASSERT_EQ(snapshot.salts.size(), 2u);
  for (const Sha256Digest& digest : snapshot.salts) {
    EXPECT_EQ(std::string(digest.begin(), digest.end()).find("alice"), std::string::npos);
  }
  Kv other({0}, 40);
  restore(kv, snapshot, other);
  other.check();
  EXPECT_EQ(other.cache.salt_count(), 2u);
  EXPECT_EQ(hit(other, text(40), "alice's secret"), 32u);
  EXPECT_EQ(hit(other, text(60), "bob"), 48u);
  EXPECT_EQ(hit(other, text(60), "alice's secret"), 32u) << "the third block is bob's";
  EXPECT_EQ(hit(other, text(40)), 0u);
  EXPECT_EQ(hit(other, text(40), "eve"), 0u);
}

// The most recently used comes first, and a pool that is smaller than the snapshot gives up the rest.
TEST(PrefixSnapshot, TheBoundTakesTheMostRecentlyUsed) {
  Kv kv({0}, 40);
  fill(kv, text(48, 100));
  fill(kv, text(48, 200));
  fill(kv, text(48, 300));
  fill(kv, text(48, 100));  // used again
  const uint64_t four = kKvPayloadOffset + 4 * kv.layout.block_bytes() + directory_bytes(1, 4, 4, 4, kBlock);
  const PrefixSnapshot snapshot = snapshot_of(kv, four);
  ASSERT_EQ(snapshot.entries.size(), 4u);
  EXPECT_EQ(snapshot_bytes(kv.layout, 1, 4, 4, 4), four);
  EXPECT_EQ(snapshot_of(kv, four - 1).entries.size(), 3u);
  EXPECT_EQ(snapshot_of(kv, 0).entries.size(), 0u);
  Kv other({0}, 40);
  restore(kv, snapshot, other);
  EXPECT_EQ(hit(other, text(48, 100)), 47u);
  EXPECT_EQ(hit(other, text(48, 300)), 16u);
  EXPECT_EQ(hit(other, text(48, 200)), 0u);
}

TEST(PrefixSnapshot, TheOrderOfUseOutlivesIt) {
  Kv kv({0}, 40);
  fill(kv, text(48, 100));
  fill(kv, text(48, 200));
  Kv other({0}, 6);
  restore(kv, snapshot_of(kv), other);
  ASSERT_TRUE(other.cache.make_room(2));
  EXPECT_EQ(hit(other, text(48, 200)), 47u);
  EXPECT_EQ(hit(other, text(48, 100)), 16u) << "the ends of the older prefix go first";
}

TEST(PrefixSnapshot, ADamagedBlockTakesWhatFollowsIt) {
  Kv kv({0}, 40);
  fill(kv, text(96));
  std::vector<TokenId> branch = text(96);
  branch[20] = 777;  // parts in the second block
  fill(kv, branch);
  const PrefixSnapshot snapshot = snapshot_of(kv);
  for (size_t e = 0; e < snapshot.entries.size(); ++e) {
    uint32_t depth = 1;
    uint32_t first = snapshot.entries[e].node;
    while (snapshot.nodes[first].parent != PrefixSnapshot::kNone) {
      first = snapshot.nodes[first].parent;
      ++depth;
    }
    const TokenId* tokens = &snapshot.tokens[snapshot.entries[e].node * kBlock];
    const bool in_branch = depth == 2 ? tokens[4] == 777 : false;
    std::vector<bool> sound(snapshot.entries.size(), true);
    sound[e] = false;
    Kv other({0}, 40);
    restore(kv, snapshot, other, sound);
    other.check();
    EXPECT_EQ(other.pool.owned(), 0u);
    const uint32_t a = hit(other, text(96)), b = hit(other, branch);
    if (depth == 1) {
      EXPECT_EQ(a + b, 0u);
      EXPECT_EQ(other.cache.node_count(), 0u);
    } else if (depth == 2) {
      EXPECT_EQ(in_branch ? a : b, 95u);
      EXPECT_EQ(in_branch ? b : a, 16u);
    } else {
      EXPECT_EQ(std::min(a, b), (depth - 1) * kBlock);
      EXPECT_EQ(std::max(a, b), 95u);
    }
  }
}

// Window layers keep their last window only; the groups of one layout go together.
TEST(PrefixSnapshot, WindowsAndUnitsComeBack) {
  Kv kv({0, 32, 32}, 300);
  ASSERT_GT(kv.layout.units(), 1u);
  fill(kv, text(320));
  const PrefixSnapshot snapshot = snapshot_of(kv);
  EXPECT_TRUE(check_snapshot(kv.layout, snapshot, 10000).ok());
  Kv other({0, 32, 32}, 300);
  restore(kv, snapshot, other);
  other.check();
  EXPECT_EQ(hit(other, text(320)), 319u);
  // Without the window's blocks at the end, only shorter prefixes serve.
  ASSERT_TRUE(kv.cache.make_room(kv.pool.free() + 50));
  Kv third({0, 32, 32}, 300);
  restore(kv, snapshot_of(kv), third);
  third.check();
  EXPECT_EQ(hit(third, text(320)), hit(kv, text(320)));
}

TEST(PrefixSnapshot, EntriesThatAreGoneAreLeftOut) {
  Kv kv({0, 32}, 100);
  fill(kv, text(64));
  PrefixSnapshot snapshot = snapshot_of(kv);
  const PrefixSnapshot whole = snapshot;
  std::vector<bool> keep(snapshot.entries.size(), true);
  keep[1] = keep[2] = false;
  keep_entries(kv.layout, keep, &snapshot);
  ASSERT_EQ(snapshot.entries.size(), whole.entries.size() - 2);
  EXPECT_EQ(snapshot.blocks[0], whole.blocks[0]);
  EXPECT_EQ(snapshot.blocks.back(), whole.blocks.back());
  EXPECT_EQ(snapshot.serials.back(), whole.serials.back());
  EXPECT_TRUE(check_snapshot(kv.layout, snapshot, 1000).ok());
}

TEST(PrefixSnapshot, ASerialIsTheContentsOwn) {
  Kv kv({0}, 4);
  fill(kv, text(32));
  const PrefixSnapshot before = snapshot_of(kv);
  EXPECT_NE(before.serials[0], before.serials[1]);
  fill(kv, text(64, 100));  // takes the same blocks again
  uint32_t same = 0;
  for (size_t b = 0; b < before.blocks.size(); ++b)
    same += kv.cache.place(before.blocks[b]).serial == before.serials[b];
  EXPECT_EQ(same, 0u);
}

TEST(PrefixSnapshot, WhatIsNoSnapshotIsRefused) {
  Kv kv({0, 32}, 100);
  fill(kv, text(64));
  const PrefixSnapshot sound = snapshot_of(kv);
  ASSERT_TRUE(check_snapshot(kv.layout, sound, 64).ok());
  const auto refused = [&](auto change, const char* words) {
    PrefixSnapshot s = sound;
    change(s);
    const Status status = check_snapshot(kv.layout, s, 64);
    EXPECT_EQ(status.code(), ErrorCode::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr(words));
  };
  refused([](auto& s) { s.nodes[1].parent = 1; }, "parent 1");
  refused([](auto& s) { s.nodes[1].parent = 77; }, "parent 77");
  refused([](auto& s) { s.nodes[0].salt = 1; }, "salt 1");
  refused([](auto& s) { s.tokens[3] = 64; }, "64");
  refused([](auto& s) { s.tokens[3] = -1; }, "-1");
  refused([](auto& s) { s.entries[0].node = 4; }, "node 4 of 4");
  refused([](auto& s) { s.entries[0].group = 2; }, "group 2 of 2");
  refused([](auto& s) { s.entries[1] = s.entries[0]; }, "two entries");
  refused([](auto& s) { s.blocks.pop_back(); }, "blocks");
}

}  // namespace
}  // namespace kvasir
