// The forward pass of a tiny model on several threads: small enough for the thread sanitizer, with contexts
// that are cut among threads and prefixes that are shared.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "models/causal_lm.h"
#include "models/tiny_model.h"

namespace kvasir {
namespace {

constexpr uint32_t kBlock = 64;
constexpr uint32_t kPrefix = 35 * kBlock;  // more than two splits of attention
constexpr uint32_t kEntries = kPrefix / kBlock + 1;
constexpr uint32_t kMembers = 3;

class Rig {
 public:
  explicit Rig(uint32_t threads) : pool_(threads) {
    const std::vector<std::byte> bytes =
        TinyModel{.tokens = 70, .rows = 70, .context = 4096, .noisy = true}.bytes();
    const auto file = GgufFile::parse(bytes, "tiny");
    EXPECT_TRUE(file.ok()) << file.message();
    auto loaded =
        CausalLm::load(*file, kernel_table(best_isa()), pool_, {.max_rows = 256, .max_logit_rows = 256});
    EXPECT_TRUE(loaded.ok()) << loaded.message();
    model_ = std::move(loaded).value();
    const auto layout = KvLayout::make(model_->config().kv_layers(), kBlock, KvType::kF16);
    store_ = std::make_unique<KvStore>(*layout, kMembers * kEntries);
  }

  // All members read the same blocks as member 0 but for the last entry, or each its own.
  void lay(bool shared) {
    for (uint32_t m = 0; m < kMembers; ++m) {
      for (uint32_t e = 0; e < kEntries; ++e) {
        const bool own = !shared || e + 1 == kEntries;
        tables_[m][e] = BlockId{(own ? m : 0) * kEntries + (kEntries - 1 - e)};
      }
    }
  }

  // One step: rows[m] tokens of member m from position `first` on. Returns the logits of all rows.
  std::vector<float> step(uint32_t first, const std::vector<uint32_t>& rows) {
    std::vector<TokenId> tokens;
    std::vector<int32_t> positions;
    std::vector<ForwardBatch::Sequence> sequences;
    std::vector<uint32_t> logit_rows;
    for (uint32_t m = 0; m < rows.size(); ++m) {
      sequences.push_back({static_cast<uint32_t>(tokens.size()), rows[m], {&pointers_[m], 1}});
      for (uint32_t p = first; p < first + rows[m]; ++p) {
        logit_rows.push_back(static_cast<uint32_t>(tokens.size()));
        tokens.push_back(static_cast<TokenId>((p * 31 + (p < kPrefix ? 0 : m * 7)) % 70));
        positions.push_back(static_cast<int32_t>(p));
      }
    }
    std::vector<float> logits(tokens.size() * 70);
    hidden_.resize(tokens.size() * kPoints.size() * model_->config().hidden_dim);
    model_->forward({.tokens = tokens,
                     .positions = positions,
                     .sequences = sequences,
                     .logit_rows = logit_rows,
                     .hidden = {.rows = logit_rows, .points = kPoints, .out = hidden_.data()}},
                    *store_, logits);
    return logits;
  }

  // In front of the only layer, behind it, and what the output head reads: of all rows of the last step.
  static constexpr std::array<uint32_t, 3> kPoints = {0, 1, HiddenTap::kOutputNorm};
  const std::vector<float>& hidden() const { return hidden_; }
  const CausalLm& model() const { return *model_; }

  void read_prefix(uint32_t members) {
    for (uint32_t first = 0; first < kPrefix; first += 80)
      step(first, std::vector<uint32_t>(members, std::min(80u, kPrefix - first)));
  }

 private:
  ThreadPool pool_;
  std::unique_ptr<CausalLm> model_;
  std::unique_ptr<KvStore> store_;
  std::vector<float> hidden_;
  BlockId tables_[kMembers][kEntries];
  const BlockId* pointers_[kMembers] = {tables_[0], tables_[1], tables_[2]};
};

// Logits of `count` tokens of every member behind the prefix, `chunk` at a time.
std::vector<float> run(uint32_t threads, bool shared, uint32_t count, uint32_t chunk) {
  Rig rig(threads);
  rig.lay(shared);
  rig.read_prefix(shared ? 1 : kMembers);
  std::vector<float> by_member[kMembers];
  for (uint32_t done = 0; done < count; done += chunk) {
    const std::vector<float> logits = rig.step(kPrefix + done, std::vector<uint32_t>(kMembers, chunk));
    const size_t each = logits.size() / kMembers;
    for (size_t m = 0; m < kMembers; ++m)
      by_member[m].insert(by_member[m].end(), logits.begin() + static_cast<std::ptrdiff_t>(m * each),
                          logits.begin() + static_cast<std::ptrdiff_t>((m + 1) * each));
  }
  std::vector<float> all;
  for (const auto& member : by_member) all.insert(all.end(), member.begin(), member.end());
  return all;
}

void expect_same(const std::vector<float>& a, const std::vector<float>& b, const char* what,
                 uint32_t threads) {
  ASSERT_EQ(a.size(), b.size());
  EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size() * sizeof(float)), 0)
      << what << ", " << threads << " threads";
}

TEST(Forward, ThreadsChunksAndSharingTouchNoBit) {
  const std::vector<float> want = run(1, false, 6, 6);
  EXPECT_TRUE(std::all_of(want.begin(), want.end(), [](float x) { return std::isfinite(x); }));
  EXPECT_NE(std::memcmp(want.data(), want.data() + want.size() / kMembers, 70 * sizeof(float)), 0)
      << "members must differ";
  for (const uint32_t threads : {1u, 2u, 3u}) {
    expect_same(want, run(threads, false, 6, 6), "in one go", threads);
    expect_same(want, run(threads, false, 6, 1), "token by token", threads);
    expect_same(want, run(threads, true, 6, 3), "on a shared prefix, by threes", threads);
    expect_same(want, run(threads, true, 6, 1), "on a shared prefix, token by token", threads);
  }
}

// One and two rows, which every thread norms for itself.
TEST(Forward, FewRowsGiveTheBitsOfMany) {
  std::vector<float> want;
  for (const uint32_t threads : {1u, 2u, 3u}) {
    Rig rig(threads);
    rig.lay(false);
    const std::vector<float> many = rig.step(0, {40});
    if (want.empty()) want = many;
    expect_same(want, many, "forty at once", threads);
    for (const uint32_t rows : {1u, 2u}) {
      std::vector<float> got;
      for (uint32_t p = 0; p < 40; p += rows) {
        const std::vector<float> some = rig.step(p, {rows});
        got.insert(got.end(), some.begin(), some.end());
      }
      expect_same(want, got, rows == 1 ? "one by one" : "two by two", threads);
    }
  }
}

TEST(Forward, HiddenStatesAreTheSameWhateverTheBatch) {
  std::vector<float> want;
  for (const uint32_t threads : {1u, 2u, 3u}) {
    Rig rig(threads);
    rig.lay(false);
    rig.step(0, {40});
    if (want.empty()) want = rig.hidden();
    expect_same(want, rig.hidden(), "forty at once", threads);
    for (const uint32_t rows : {1u, 2u, 5u}) {
      std::vector<float> got;
      for (uint32_t p = 0; p < 40; p += rows) {
        rig.step(p, {rows});
        got.insert(got.end(), rig.hidden().begin(), rig.hidden().end());
      }
      expect_same(want, got, "some at a time", threads);
    }
  }
}

// The first point is the embedding; the last one times the rows of the head (F32 here) gives the logits.
TEST(Forward, HiddenStatesAreThoseOfTheirPoints) {
  Rig rig(2);
  rig.lay(false);
  const std::vector<float> logits = rig.step(0, {7});
  const size_t d = rig.model().config().hidden_dim, row = d * Rig::kPoints.size();
  std::vector<float> values(d);
  for (uint32_t r = 0; r < 7; ++r) {
    rig.model().read_embedding(static_cast<TokenId>(r * 31 % 70), values.data());
    EXPECT_EQ(std::memcmp(values.data(), rig.hidden().data() + r * row, d * sizeof(float)), 0);
    for (TokenId t = 0; t < 70; ++t) {
      rig.model().read_head_row(t, values.data());
      double product = 0;
      for (size_t i = 0; i < d; ++i) product += double{values[i]} * rig.hidden()[r * row + 2 * d + i];
      EXPECT_NEAR(logits[r * 70 + static_cast<size_t>(t)], product, 1e-4);
    }
    EXPECT_NE(
        std::memcmp(rig.hidden().data() + r * row, rig.hidden().data() + r * row + d, d * sizeof(float)), 0);
  }
}

}  // namespace
}  // namespace kvasir
