#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "kvcache/block_pool.h"
#include "kvcache/kv_layout.h"
#include "kvcache/prefix_cache.h"

namespace kvasir {

// A block whose contents must be copied before the step that was planned is computed; copies are made in
// order.
struct BlockCopy {
  BlockId from, to;
};

// Which blocks hold one sequence's tokens, in every group. Entry e of a group covers positions e * block_size
// to (e + 1) * block_size - 1; entries that left the group's window hold kNoBlock. Move-only; releases what
// it owns on destruction. Beside the ids it keeps the sequence's place in the prefix cache.
class BlockTable {
 public:
  // For at most max_tokens tokens: memory for the ids is reserved here, so that tables() stay where they are.
  BlockTable(const KvLayout& layout, BlockPool& pool, PrefixCache& cache, std::string_view salt,
             uint32_t max_tokens);
  ~BlockTable();
  BlockTable(BlockTable&& other) noexcept;
  BlockTable& operator=(BlockTable&& other) = delete;
  BlockTable(const BlockTable&) = delete;

  // A table that shares every block of this one.
  BlockTable fork() const;

  PrefixCache::SaltId salt() const { return salt_; }
  uint32_t entries() const { return entries_; }
  // Ids per group, as ForwardBatch wants them; valid for the life of the table.
  std::span<const BlockId* const> tables() const { return pointers_; }
  // Blocks referred to, over all groups.
  uint32_t block_count() const;
  // Adds one per reference to counts[block]. For checks.
  void count_references(std::span<uint32_t> counts) const;
  // True when rows at positions [first, first + rows) may be written: every entry is there, has this owner
  // only, and is in no prefix. For checks.
  bool writable(uint32_t first, uint32_t rows) const;

  // Starts an empty table with a hit's blocks.
  void adopt(const PrefixCache::Hit& hit);

  // Blocks that prepare() would take from the pool.
  uint32_t blocks_wanted(uint32_t first, uint32_t rows) const;
  // Makes positions [first, first + rows) writable: adds entries, copies shared ones (the copies are appended
  // to *copies), takes the others out of the prefix cache. False, with nothing changed, when the pool has not
  // enough.
  bool prepare(uint32_t first, uint32_t rows, std::vector<BlockCopy>* copies);

  // The first `computed` of `tokens` are final and their K and V are stored: enters blocks that became full
  // into the prefix cache (exchanging a block for an equal one that is already there) and gives back what
  // left a window.
  void commit(std::span<const TokenId> tokens, uint32_t computed);

  // Gives back entries that hold no position below `tokens`.
  void truncate_to(uint32_t tokens);
  // Gives back everything, last entries first.
  void release();

 private:
  struct Group {
    uint32_t window = 0;
    uint32_t units = 0;
    uint32_t first = 0;  // entries before it hold kNoBlock
    std::vector<BlockId> ids;
  };

  void release_entry(Group& group, uint32_t entry);
  void replace_shared(Group& group, uint32_t entry, std::vector<BlockCopy>* copies);
  void enter_prefix(std::span<const TokenId> block_tokens);
  void leave_windows(uint32_t computed);

  const KvLayout& layout_;
  BlockPool& pool_;
  PrefixCache& cache_;
  PrefixCache::SaltId salt_;
  bool owns_salt_ = true;
  uint32_t max_entries_;
  uint32_t entries_ = 0;
  std::vector<Group> groups_;
  std::vector<const BlockId*> pointers_;
  // Place in the prefix cache: the node of the last block entered and how many were; stuck when it had no
  // room.
  PrefixCache::NodeId node_ = PrefixCache::kNoNode;
  uint32_t entered_ = 0;
  bool stuck_ = false;
};

}  // namespace kvasir
