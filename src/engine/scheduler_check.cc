// What must hold of the scheduler, the pool and the prefix cache after every step (docs/invariants.md).

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "engine/scheduler.h"

namespace kvasir {
namespace {

uint32_t slots_of(const std::vector<Sequence*>& list, uint32_t user) {
  uint32_t slots = 0;
  for (const Sequence* s : list) slots += s->user == user ? s->slots : 0;
  return slots;
}

}  // namespace

Status Scheduler::check_integrity(std::span<const BlockId> lent) const {
  if (!std::is_sorted(running_.begin(), running_.end(),
                      [](const Sequence* a, const Sequence* b) { return a->age < b->age; }))
    return internal_error("running sequences are not in order of age");
  if (slots_used() > options_.max_num_seqs)
    return internal_error(fmt::format("{} slots used of {}", slots_used(), options_.max_num_seqs));
  std::vector<uint32_t> refs(pool_.total(), 0);
  for (const BlockId id : lent) ++refs[static_cast<uint32_t>(id)];
  for (const Sequence* s : running_) {
    s->table.count_references(refs);
    if (slots_of(running_, s->user) != queue_.running(s->user))
      return internal_error(fmt::format("user {} runs {} slots, {} are counted", s->user,
                                        slots_of(running_, s->user), queue_.running(s->user)));
    if (s->computed > s->known() || s->computed > s->table.entries() * layout_.block_size())
      return internal_error(fmt::format("{} tokens computed of {} known, table of {} entries", s->computed,
                                        s->known(), s->table.entries()));
    if (s->scheduled > 0 && !s->table.writable(s->computed, s->scheduled))
      return internal_error(fmt::format("rows {} to {} would be written to blocks that are shared or cached",
                                        s->computed, s->computed + s->scheduled));
  }
  KVASIR_RETURN_IF_ERROR(queue_.check_integrity());
  const std::vector<Sequence*> waiting = this->waiting();
  if (waiting.size() != queue_.size())
    return internal_error(fmt::format("{} sequences wait, {} are counted", waiting.size(), queue_.size()));
  for (const Sequence* s : waiting) {
    if (s->table.entries() != 0 || s->computed != 0) return internal_error("a waiting sequence owns blocks");
    if (s->leader != nullptr && std::find(running_.begin(), running_.end(), s->leader) == running_.end())
      return internal_error("a sequence waits for one that does not run");
  }
  for (uint32_t b = 0; b < pool_.total(); ++b) {
    if (refs[b] != pool_.refs(BlockId{b}))
      return internal_error(
          fmt::format("block {} counts {} owners, tables hold {}", b, pool_.refs(BlockId{b}), refs[b]));
  }
  KVASIR_RETURN_IF_ERROR(pool_.check_integrity());
  return cache_.check_integrity();
}

}  // namespace kvasir
