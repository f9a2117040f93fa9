#include "kvcache/block_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvasir {
namespace {

uint32_t divide_up(uint32_t a, uint32_t b) {
  return a / b + (a % b != 0);
}

}  // namespace

BlockTable::BlockTable(const KvLayout& layout, BlockPool& pool, PrefixCache& cache, std::string_view salt,
                       uint32_t max_tokens)
    : layout_(layout),
      pool_(pool),
      cache_(cache),
      salt_(cache.open_salt(salt)),
      max_entries_(divide_up(max_tokens, layout.block_size())) {
  groups_.reserve(layout.groups().size());
  for (const KvLayout::Group& g : layout.groups()) {
    Group& group = groups_.emplace_back();
    group.window = g.window;
    group.units = g.units;
    group.ids.reserve(size_t{max_entries_} * g.units);
    pointers_.push_back(group.ids.data());
  }
}

BlockTable::~BlockTable() {
  if (!owns_salt_) return;
  release();
  cache_.close_salt(salt_);
}

BlockTable::BlockTable(BlockTable&& other) noexcept
    : layout_(other.layout_),
      pool_(other.pool_),
      cache_(other.cache_),
      salt_(other.salt_),
      owns_salt_(std::exchange(other.owns_salt_, false)),
      max_entries_(other.max_entries_),
      entries_(std::exchange(other.entries_, 0)),
      groups_(std::move(other.groups_)),
      pointers_(std::move(other.pointers_)),
      node_(std::exchange(other.node_, PrefixCache::kNoNode)),
      entered_(std::exchange(other.entered_, 0)),
      stuck_(other.stuck_) {}

BlockTable BlockTable::fork() const {
  BlockTable copy(layout_, pool_, cache_, {}, max_entries_ * layout_.block_size());
  cache_.close_salt(copy.salt_);
  cache_.share_salt(salt_);
  copy.salt_ = salt_;
  copy.entries_ = entries_;
  for (size_t g = 0; g < groups_.size(); ++g) {
    copy.groups_[g].first = groups_[g].first;
    copy.groups_[g].ids.assign(groups_[g].ids.begin(), groups_[g].ids.end());
    for (const BlockId id : groups_[g].ids) {
      if (id != kNoBlock) pool_.share(id);
    }
  }
  copy.node_ = node_;
  copy.entered_ = entered_;
  copy.stuck_ = stuck_;
  if (node_ != PrefixCache::kNoNode) cache_.pin(node_);
  return copy;
}

uint32_t BlockTable::block_count() const {
  uint32_t count = 0;
  for (const Group& group : groups_) count += (entries_ - group.first) * group.units;
  return count;
}

void BlockTable::count_references(std::span<uint32_t> counts) const {
  for (const Group& group : groups_) {
    for (const BlockId id : group.ids) {
      if (id != kNoBlock) ++counts[index_of(id)];
    }
  }
}

bool BlockTable::writable(uint32_t first, uint32_t rows) const {
  const uint32_t size = layout_.block_size();
  if (rows == 0 || divide_up(first + rows, size) > entries_) return rows == 0;
  for (const Group& group : groups_) {
    for (uint32_t e = first / size; e < divide_up(first + rows, size); ++e) {
      for (uint32_t u = 0; u < group.units; ++u) {
        const BlockId id = group.ids[size_t{e} * group.units + u];
        if (id == kNoBlock || pool_.refs(id) != 1 || pool_.retained(id)) return false;
      }
    }
  }
  return true;
}

void BlockTable::adopt(const PrefixCache::Hit& hit) {
  CHECK(entries_ == 0 && hit.entries <= max_entries_);
  entries_ = hit.entries;
  for (Group& group : groups_) {
    group.first = std::min(first_visible(group.window, hit.tokens) / layout_.block_size(), entries_);
    group.ids.assign(size_t{entries_} * group.units, kNoBlock);
  }
  PrefixCache::NodeId node = hit.node;
  for (uint32_t e = entries_; e-- > 0; node = cache_.parent(node)) {
    for (uint32_t g = 0; g < groups_.size(); ++g) {
      Group& group = groups_[g];
      if (e < group.first) continue;
      const BlockId* ids = cache_.resident(node, g);
      CHECK(ids != nullptr);
      for (uint32_t u = 0; u < group.units; ++u) {
        pool_.share(ids[u]);
        group.ids[size_t{e} * group.units + u] = ids[u];
      }
    }
  }
  // A block of which only a part is used counts as entered once it is full again.
  entered_ = hit.tokens / layout_.block_size();
  node_ = entered_ == hit.entries ? hit.node : cache_.parent(hit.node);
  if (entered_ == 0) node_ = PrefixCache::kNoNode;
  if (node_ != PrefixCache::kNoNode) cache_.pin(node_);
}

uint32_t BlockTable::blocks_wanted(uint32_t first, uint32_t rows) const {
  const uint32_t size = layout_.block_size();
  const uint32_t end = divide_up(first + rows, size);
  uint32_t wanted = 0;
  for (const Group& group : groups_) {
    uint32_t fresh = end > entries_ ? end - entries_ : 0;
    for (uint32_t e = first / size; e < std::min(end, entries_); ++e)
      fresh += pool_.refs(group.ids[size_t{e} * group.units]) > 1;
    wanted += fresh * group.units;
  }
  return wanted;
}

bool BlockTable::prepare(uint32_t first, uint32_t rows, std::vector<BlockCopy>* copies) {
  const uint32_t size = layout_.block_size();
  const uint32_t end = divide_up(first + rows, size);
  CHECK(first / size <= entries_ && end <= max_entries_);
  if (!cache_.make_room(blocks_wanted(first, rows))) return false;
  for (Group& group : groups_) {
    for (uint32_t e = first / size; e < std::min(end, entries_); ++e) {
      const BlockId id = group.ids[size_t{e} * group.units];
      if (pool_.refs(id) > 1)
        replace_shared(group, e, copies);
      else if (pool_.retained(id))
        cache_.forget(id);
    }
    for (uint32_t e = entries_; e < end; ++e) {
      for (uint32_t u = 0; u < group.units; ++u) group.ids.push_back(pool_.take());
    }
  }
  entries_ = std::max(entries_, end);
  return true;
}

void BlockTable::replace_shared(Group& group, uint32_t entry, std::vector<BlockCopy>* copies) {
  for (uint32_t u = 0; u < group.units; ++u) {
    BlockId& id = group.ids[size_t{entry} * group.units + u];
    const BlockId fresh = pool_.take();
    copies->push_back({id, fresh});
    pool_.release(id);
    id = fresh;
  }
}

void BlockTable::commit(std::span<const TokenId> tokens, uint32_t computed) {
  const uint32_t size = layout_.block_size();
  while (cache_.enabled() && !stuck_ && (entered_ + 1) * size <= computed)
    enter_prefix(tokens.subspan(size_t{entered_} * size, size));
  leave_windows(computed);
}

void BlockTable::enter_prefix(std::span<const TokenId> block_tokens) {
  const PrefixCache::NodeId node = cache_.extend(salt_, node_, block_tokens);
  stuck_ = node == PrefixCache::kNoNode;
  if (stuck_) return;
  cache_.pin(node);
  if (node_ != PrefixCache::kNoNode) cache_.unpin(node_);
  node_ = node;
  for (uint32_t g = 0; g < groups_.size(); ++g) {
    Group& group = groups_[g];
    if (entered_ < group.first) continue;
    BlockId* mine = &group.ids[size_t{entered_} * group.units];
    const BlockId* there = cache_.resident(node, g);
    if (there == nullptr) {
      cache_.attach(node, g, mine);
      continue;
    }
    for (uint32_t u = 0; u < group.units && there[u] != mine[u]; ++u) {
      pool_.share(there[u]);
      pool_.release(mine[u]);
      mine[u] = there[u];
    }
  }
  ++entered_;
}

void BlockTable::leave_windows(uint32_t computed) {
  for (Group& group : groups_) {
    const uint32_t first = std::min(first_visible(group.window, computed) / layout_.block_size(), entries_);
    for (; group.first < first; ++group.first) release_entry(group, group.first);
  }
}

void BlockTable::release_entry(Group& group, uint32_t entry) {
  for (uint32_t u = 0; u < group.units; ++u) {
    BlockId& id = group.ids[size_t{entry} * group.units + u];
    pool_.release(id);
    id = kNoBlock;
  }
}

void BlockTable::truncate_to(uint32_t tokens) {
  const uint32_t size = layout_.block_size();
  const uint32_t keep = divide_up(tokens, size);
  for (; entries_ > keep; --entries_) {
    for (Group& group : groups_) {
      if (entries_ - 1 >= group.first) release_entry(group, entries_ - 1);
      group.ids.resize(size_t{entries_ - 1} * group.units);
      group.first = std::min(group.first, entries_ - 1);
    }
  }
  while (entered_ > tokens / size) {
    const PrefixCache::NodeId up = cache_.parent(node_);
    if (up != PrefixCache::kNoNode) cache_.pin(up);
    cache_.unpin(node_);
    node_ = up;
    --entered_;
  }
}

void BlockTable::release() {
  truncate_to(0);
  stuck_ = false;
}

}  // namespace kvasir
