#include "decoding/ngram_drafter.h"

#include <algorithm>
#include <array>

#include "base/check.h"
#include "decoding/continuation_vote.h"

namespace kvasir {
namespace {

// How many tokens before `a` and before `b`, those included, are equal: at most `most`. a < b.
uint32_t common_length(std::span<const TokenId> known, uint32_t a, uint32_t b, uint32_t most) {
  most = std::min(most, a + 1);
  uint32_t n = 0;
  while (n < most && known[a - n] == known[b - n]) ++n;
  return n;
}

uint64_t extend_hash(uint64_t hash, TokenId token) {
  hash = (hash ^ static_cast<uint32_t>(token)) * 0x9E3779B97F4A7C15u;
  return hash ^ hash >> 32;
}

size_t bucket_of(uint64_t hash, size_t buckets) {
  return static_cast<size_t>((hash * 0xD6E8FEB86659FD93u >> 32) * buckets >> 32);
}

uint32_t evidence_of(uint32_t length, uint32_t voters, float share) {
  if (share < 1) return 0;
  constexpr std::array<uint32_t, Draft::kEvidences - 1> kFrom = {1, 3, 4, 8, 12, 16, 32};
  const uint32_t as_sure_as = voters > 1 ? 4 * length : length;
  return static_cast<uint32_t>(std::upper_bound(kFrom.begin(), kFrom.end(), as_sure_as) - kFrom.begin());
}

}  // namespace

struct NgramDrafter::Occurrences {
  std::array<uint32_t, NgramOptions::kMostVoters> ends;  // latest first
  uint32_t count = 0;
  uint32_t length = 0;  // tokens that each of them shares with the end of the sequence

  void add(uint32_t end, uint32_t common) {
    if (common < length) return;
    if (common > length) count = 0, length = common;
    ends[count++] = end;
  }
};

NgramDrafter::NgramDrafter(uint32_t slots, NgramOptions options)
    : options_(options), lengths_(options.max_match - options.min_match + 1), slots_(slots) {
  CHECK(options.min_match >= 1 && options.min_match <= options.max_match);
  CHECK(options.max_match <= NgramOptions::kLongestMatch);
  CHECK(options.occurrences >= 1 && options.occurrences <= NgramOptions::kMostVoters);
}

// As in the answers that `evidence` goes by.
DraftChances NgramDrafter::chances() const {
  return {{{0.31, 0.75},
           {0.65, 0.8},
           {0.4, 0.8},
           {0.84, 0.83},
           {0.6, 0.8},
           {0.9, 0.93},
           {0.9, 0.95},
           {0.98, 0.98}}};
}

void NgramDrafter::open(uint32_t slot, uint32_t max_tokens) {
  Slot& s = slots_.at(slot);
  CHECK(!s.open);
  const size_t entries = size_t{max_tokens} * lengths_;
  s.memory = AlignedBuffer(2 * entries * sizeof(uint32_t));
  s.latest = s.memory.as<uint32_t>().first(entries);
  s.earlier = s.memory.as<uint32_t>().subspan(entries);
  s.max_tokens = max_tokens;
  s.indexed = 0;
  s.open = true;
}

void NgramDrafter::close(uint32_t slot) {
  CHECK(slots_.at(slot).open);
  slots_[slot] = {};
}

void NgramDrafter::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    Slot& slot = slots_.at(job.slot);
    CHECK(slot.open && job.known.size() <= slot.max_tokens && job.known.size() >= slot.indexed);
    CHECK(job.most <= Draft::kMost);
    job.draft->clear();
    index(slot, job.known);
    if (job.known.size() > options_.min_match && job.most > 0) draft(slot, job);
  }
}

size_t NgramDrafter::bytes() const {
  size_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.memory.size();
  return sum;
}

void NgramDrafter::index(Slot& slot, std::span<const TokenId> known) const {
  for (uint32_t end = slot.indexed; end < known.size(); ++end) {
    uint64_t hash = 0;
    uint32_t* earlier = &slot.earlier[size_t{end} * lengths_];
    for (uint32_t n = 1; n <= std::min(options_.max_match, end + 1); ++n) {
      hash = extend_hash(hash, known[end - n + 1]);
      if (n < options_.min_match) continue;
      const uint32_t row = n - options_.min_match;
      uint32_t& latest = slot.latest[size_t{row} * slot.max_tokens + bucket_of(hash, slot.max_tokens)];
      earlier[row] = latest;
      latest = end + 1;
    }
  }
  slot.indexed = static_cast<uint32_t>(known.size());
}

void NgramDrafter::find(const Slot& slot, std::span<const TokenId> known, Occurrences& found) const {
  const auto last = static_cast<uint32_t>(known.size() - 1);
  for (uint32_t n = options_.max_match; n >= options_.min_match && found.count == 0; --n) {
    const uint32_t furthest = n == options_.max_match ? 4 * n : n;
    // Other n-grams of the same hash stand in the chain too: they are passed over, but not without end.
    uint32_t seen = 0;
    uint32_t link = last;
    for (uint32_t steps = 0; steps < 16 * options_.occurrences && seen < options_.occurrences; ++steps) {
      const uint32_t next = slot.earlier[size_t{link} * lengths_ + n - options_.min_match];
      if (next == 0) break;
      link = next - 1;
      const uint32_t common = common_length(known, link, last, furthest);
      if (common < n) continue;
      found.add(link, common);
      ++seen;
    }
  }
}

void NgramDrafter::draft(Slot& slot, const DraftJob& job) const {
  Occurrences found;
  find(slot, job.known, found);
  std::array<Voter, NgramOptions::kMostVoters> voters;
  const TokenId* const tokens = job.known.data();
  for (uint32_t i = 0; i < found.count; ++i)
    voters[i] = {.next = tokens + found.ends[i] + 1, .end = tokens + job.known.size()};
  const VoteResult vote = vote_continuation({voters.data(), found.count}, {.min_share = options_.min_share},
                                            job.most, *job.draft);
  if (job.draft->size > 0) job.draft->evidence = evidence_of(found.length, found.count, vote.first_share);
}

}  // namespace kvasir
