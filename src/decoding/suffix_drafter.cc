#include "decoding/suffix_drafter.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/check.h"
#include "decoding/continuation_vote.h"

namespace kvasir {
namespace {

uint32_t evidence_of(float share) {
  constexpr std::array<float, Draft::kEvidences - 1> kFrom = {0.25f, 0.4f,   0.6f,    0.85f,
                                                              0.96f, 0.998f, 0.99999f};
  return static_cast<uint32_t>(std::upper_bound(kFrom.begin(), kFrom.end(), share) - kFrom.begin());
}

}  // namespace

// Places like the end of the sequence.
struct SuffixDrafter::Places {
  struct One {
    Voter voter;
    uint32_t common = 0;  // tokens that it shares with the end of the sequence
    uint32_t position = 0;
  };
  std::array<One, 2 * SuffixOptions::kMostVoters> list;
  uint32_t count = 0;
};

SuffixDrafter::SuffixDrafter(uint32_t slots, SuffixOptions options)
    : options_(options), store_(options.shared_bytes), slots_(slots) {
  CHECK(options.min_match >= 1);
  CHECK(options.voters >= 1 && options.voters <= SuffixOptions::kMostVoters);
  CHECK(options.gain >= 1);
  for (uint32_t i = 0; i < fading_.size(); ++i) fading_[i] = std::pow(options.gain, -static_cast<float>(i));
}

DraftChances SuffixDrafter::chances() const {
  return {{{0.16, 0.7},
           {0.28, 0.75},
           {0.36, 0.7},
           {0.62, 0.8},
           {0.77, 0.82},
           {0.87, 0.82},
           {0.91, 0.87},
           {0.97, 0.97}}};
}

void SuffixDrafter::open(uint32_t slot, uint32_t max_tokens) {
  Slot& s = slots_.at(slot);
  CHECK(!s.open);
  const bool keeps = options_.shared_bytes > 0;
  s.memory = AlignedBuffer(max_tokens * (sizeof(ContextTree::Node) + (keeps ? sizeof(TokenId) : 0)));
  const size_t node_bytes = max_tokens * sizeof(ContextTree::Node);
  s.places = ContextTree({reinterpret_cast<ContextTree::Node*>(s.memory.data()), max_tokens});
  if (keeps) {
    s.output = {reinterpret_cast<TokenId*>(s.memory.data() + node_bytes), max_tokens};
    s.tenant.reserve(OutputStore::kLongestTenant);
  }
  s.max_tokens = max_tokens;
  s.open = true;
}

void SuffixDrafter::close(uint32_t slot) {
  Slot& s = slots_.at(slot);
  CHECK(s.open);
  if (s.has_tenant) store_.add(s.tenant, s.output.first(s.output_kept));
  s = {};
}

void SuffixDrafter::propose(std::span<DraftJob> jobs) {
  for (DraftJob& job : jobs) {
    Slot& slot = slots_.at(job.slot);
    CHECK(slot.open && job.known.size() <= slot.max_tokens && job.known.size() >= slot.indexed);
    CHECK(job.most <= Draft::kMost && job.output_tokens <= job.known.size());
    job.draft->clear();
    update(slot, job);
    if (!job.known.empty() && job.most > 0) draft(slot, job);
  }
}

size_t SuffixDrafter::bytes() const {
  size_t sum = 0;
  for (const Slot& slot : slots_) sum += slot.memory.size();
  return sum;
}

void SuffixDrafter::update(Slot& slot, const DraftJob& job) const {
  for (uint32_t i = slot.indexed; i < job.known.size(); ++i) slot.places.insert(job.known.data(), i);
  slot.indexed = static_cast<uint32_t>(job.known.size());
  if (options_.shared_bytes > 0 && job.cache_salt.size() <= OutputStore::kLongestTenant)
    keep_output(slot, job);
}

void SuffixDrafter::keep_output(Slot& slot, const DraftJob& job) const {
  if (!slot.has_tenant) slot.tenant = job.cache_salt;  // has room for it already
  slot.has_tenant = true;
  const std::span<const TokenId> output = job.known.last(job.output_tokens);
  for (; slot.output_kept < output.size(); ++slot.output_kept)
    slot.output[slot.output_kept] = output[slot.output_kept];
}

// The most similar places of the tree first; `own`: it is that of the sequence itself.
void SuffixDrafter::gather(const ContextTree& tree, std::span<const TokenId> text, bool own,
                           std::span<const TokenId> known, Places& places) const {
  const Context end = ContextTree::context_at(known.data(), static_cast<uint32_t>(known.size() - 1));
  const auto similarity = [&](uint32_t place) {
    return place == ContextTree::kNone
               ? 0
               : ContextTree::common(end, ContextTree::context_at(text.data(), place));
  };
  const auto before = [&](uint32_t place) {
    return place == ContextTree::kNone ? place : tree.before(place);
  };
  ContextTree::Place at = tree.find(text.data(), end);
  if (own && at.before == known.size() - 1) at.before = before(at.before);
  uint32_t common_before = similarity(at.before), common_after = similarity(at.after);
  for (uint32_t i = 0; i < options_.voters; ++i) {
    const uint32_t common = std::max(common_before, common_after);
    if (common < options_.min_match) break;
    const bool down = common_before > common_after || (common_before == common_after && at.before > at.after);
    const uint32_t place = down ? at.before : at.after;
    places.list[places.count++] = {
        .voter = {.next = text.data() + place + 1, .end = text.data() + text.size(), .runs_on = own},
        .common = common,
        .position = place};
    if (down)
      common_before = similarity(at.before = before(place));
    else
      common_after = similarity(at.after = tree.after(place));
  }
}

void SuffixDrafter::draft(const Slot& slot, const DraftJob& job) const {
  Places places;
  gather(slot.places, job.known, true, job.known, places);
  if (const ContextTree* outputs = slot.has_tenant ? store_.outputs_of(slot.tenant) : nullptr)
    gather(*outputs, store_.text(), false, job.known, places);
  if (places.count == 0) return;
  // Of equals the latest votes first.
  const std::span list(places.list.data(), places.count);
  std::sort(list.begin(), list.end(), [](const Places::One& a, const Places::One& b) {
    if (a.common != b.common) return a.common > b.common;
    if (a.voter.runs_on != b.voter.runs_on) return a.voter.runs_on;
    return a.position > b.position;
  });
  const uint32_t longest = list.front().common;
  std::array<Voter, 2 * SuffixOptions::kMostVoters> voters;
  for (size_t i = 0; i < list.size(); ++i) {
    voters[i] = list[i].voter;
    voters[i].weight = fading_[longest - list[i].common];
  }
  const auto longest_draft = static_cast<uint32_t>(options_.length_factor * static_cast<float>(longest));
  const VoteRule rule{.min_path = options_.min_path,
                      .doubt = options_.doubt * fading_[longest],
                      .doubt_decay = 1 / options_.gain};
  const VoteResult vote =
      vote_continuation({voters.data(), list.size()}, rule, std::min(job.most, longest_draft), *job.draft);
  if (job.draft->size > 0) job.draft->evidence = evidence_of(vote.first_share);
}

}  // namespace kvasir
