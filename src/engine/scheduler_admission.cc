// Who is let in, who waits for another's blocks, and who makes place.

#include <algorithm>

#include "base/check.h"
#include "engine/scheduler.h"

namespace kvasir {
namespace {

// Length of the common prefix of two sequences, at most `limit`, in whole blocks of tokens.
uint32_t common_prefix(const Sequence& a, const Sequence& b, uint32_t limit, uint32_t block_size) {
  const uint32_t end = std::min({a.known(), b.known(), limit});
  const auto differ = std::mismatch(a.tokens.begin(), a.tokens.begin() + end, b.tokens.begin());
  return static_cast<uint32_t>(differ.first - a.tokens.begin()) / block_size * block_size;
}

}  // namespace

// Lets s run, or sets it aside for its leader. False when it can do neither and holds up the line.
bool Scheduler::admit(Sequence& s) {
  if (rows_left_ == 0 || logit_rows_left_ == 0) return false;
  if (slots_used() + s.slots > options_.max_num_seqs && to_displace(s) == nullptr) return false;
  PrefixCache::Hit hit = look_up(s);
  if (follows_leader(s, hit)) {
    queue_.set_aside(s);
    return true;
  }
  if (rows_in_time(hit.tokens, s.known() - hit.tokens) == 0 || !make_place(s, &hit)) return false;
  start(s, hit);
  CHECK(schedule(s, s.pending(), 1));
  return true;
}

PrefixCache::Hit Scheduler::look_up(const Sequence& s) const {
  // One token at least is computed, for its logits; rows to be scored need theirs too.
  return cache_.lookup(s.table.salt(), s.tokens, std::min(s.known() - 1, s.logits_from()));
}

// A running sequence that will compute more of s's prefix than the cache holds becomes its leader.
bool Scheduler::follows_leader(Sequence& s, const PrefixCache::Hit& hit) {
  s.leader = nullptr;
  const uint32_t limit = std::min(s.known() - 1, s.logits_from());
  const uint32_t size = layout_.block_size();
  if (!cache_.enabled() || limit < size) return false;
  uint32_t best = hit.tokens;
  for (Sequence* r : running_) {
    if (r->pending() <= 1 || r->table.salt() != s.table.salt()) continue;
    const uint32_t common = common_prefix(s, *r, limit, size);
    if (common > best && common > r->computed) {
      best = common;
      s.leader = r;
      s.leader_tokens = common;
    }
  }
  return s.leader != nullptr;
}

// Whose leaders have computed what they wait for.
void Scheduler::rejoin_followers() {
  for (const Sequence* r : running_) {
    for (Sequence* f = r->followers.first; f != nullptr && f->leader_tokens <= r->computed;
         f = r->followers.first)
      queue_.rejoin(*f);
  }
}

// Blocks that a running sequence still needs for the tokens it knows and the next one.
uint32_t Scheduler::blocks_promised(const Sequence& s) const {
  const uint32_t all = layout_.blocks_for(std::min(s.known() + 1, options_.max_model_len));
  return all > s.table.block_count() ? all - s.table.block_count() : 0;
}

uint32_t Scheduler::blocks_promised() const {
  uint32_t promised = 0;
  for (const Sequence* s : running_) promised += blocks_promised(*s);
  return promised;
}

// Blocks that must be available for s to be let in: its own, and those that the running ones still need.
uint64_t Scheduler::blocks_to_admit(const Sequence& s, const PrefixCache::Hit& hit) const {
  const uint32_t all = layout_.blocks_for(std::min(s.known() + 1, options_.max_model_len));
  uint64_t need = all > hit.blocks ? all - hit.blocks : 0;
  need += hit.idle_blocks;
  if (hit.tokens % layout_.block_size() != 0 && hit.idle_blocks < hit.blocks)
    need += layout_.units();  // the copy of a last block that is shared
  // One that had to go before comes back only when everybody can grow by a block: else it would soon go
  // again.
  if (s.admitted_before) need += uint64_t{running_.size()} * layout_.units();
  return need + blocks_promised();
}

// Sees to it that s has slots and blocks, displacing whom it may. False, when that is not enough.
bool Scheduler::make_place(const Sequence& s, PrefixCache::Hit* hit) {
  if (!place_within_reach(s, *hit)) return false;
  while (slots_used() + s.slots > options_.max_num_seqs || blocks_to_admit(s, *hit) > pool_.available()) {
    Sequence* other = to_displace(s);
    if (other == nullptr) return false;
    preempt(*other);
    *hit = look_up(s);
  }
  return true;
}

// Whether there would be place for s if all whom it may displace were gone, at best.
bool Scheduler::place_within_reach(const Sequence& s, const PrefixCache::Hit& hit) const {
  uint64_t slots = options_.max_num_seqs, blocks = pool_.available();
  for (const Sequence* r : running_) {
    if (!may_displace(s, *r)) continue;
    slots += r->slots;
    blocks += r->table.block_count() + blocks_promised(*r) + layout_.units();
  }
  return slots_used() + s.slots <= slots && blocks_to_admit(s, hit) <= blocks;
}

// Better priority may; and a user who runs nothing, where another runs several. It is his turn, so of those
// who wait nobody was served less.
bool Scheduler::may_displace(const Sequence& s, const Sequence& other) const {
  if (&other == oldest_) return false;
  if (s.rank() != other.rank()) return s.rank() < other.rank();
  return queue_.running(s.user) == 0 && queue_.running(other.user) > other.slots;
}

// The youngest of the worst priority among those; null when there is none.
Sequence* Scheduler::to_displace(const Sequence& s) const {
  Sequence* worst = nullptr;
  for (Sequence* r : running_) {
    if (may_displace(s, *r) && (worst == nullptr || r->rank() >= worst->rank())) worst = r;
  }
  return worst;
}

void Scheduler::start(Sequence& s, const PrefixCache::Hit& hit) {
  queue_.admit(s);
  s.table.adopt(hit);
  s.computed = hit.tokens;
  s.charged = std::max(s.charged, hit.tokens);
  s.scheduled = 0;
  s.state = Sequence::State::kRunning;
  if (!s.admitted_before) {
    s.admitted_before = true;
    s.cached_tokens = hit.tokens;
    counters_.prefix_queries += s.known();
    counters_.prefix_hits += hit.tokens;
  }
  insert_running(s);
  if (oldest_ == nullptr) oldest_ = &s;
}

}  // namespace kvasir
