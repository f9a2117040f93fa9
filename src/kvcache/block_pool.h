#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/result.h"

namespace kvasir {

// Who owns which KV block. Every block is in one of three states:
//   free    nobody owns it and its contents are worth nothing;
//   owned   one or more block tables refer to it (its reference count);
//   cached  nobody owns it, but its contents are retained for a later hit; kept in order of last release.
// free + owned + cached equals the total. All operations are O(1) and allocate nothing. Not thread-safe.
class BlockPool {
 public:
  explicit BlockPool(uint32_t blocks);

  uint32_t total() const { return static_cast<uint32_t>(blocks_.size()); }
  uint32_t free() const { return free_count_; }
  uint32_t cached() const { return cached_count_; }
  uint32_t owned() const { return total() - free_count_ - cached_count_; }
  // What can be had without taking anything from an owner.
  uint32_t available() const { return free_count_ + cached_count_; }

  // Those with lower ids than this were owned at some time; all others never.
  uint32_t reached() const { return reached_; }

  uint32_t refs(BlockId id) const { return blocks_[index_of(id)].refs; }
  bool retained(BlockId id) const { return blocks_[index_of(id)].retained; }

  // A free block, now owned once. free() must not be 0.
  BlockId take();
  // One owner more; a cached block becomes owned.
  void share(BlockId id);
  // One owner less; the last one leaves the block cached if it is retained, else free.
  void release(BlockId id);

  // The contents of an owned block are to be kept when its last owner leaves.
  void retain(BlockId id);
  // They are not any more; a cached block becomes free.
  void forget(BlockId id);

  // The cached block released longest ago, or kNoBlock.
  BlockId oldest_cached() const { return lru_.empty() ? kNoBlock : BlockId{lru_.head}; }

  // The cached block released last, and the one released before a cached block; kNoBlock where there is none.
  BlockId newest_cached() const { return lru_.empty() ? kNoBlock : BlockId{lru_.tail}; }
  BlockId older_cached(BlockId id) const {
    const uint32_t older = blocks_[index_of(id)].prev;
    return older == kNone ? kNoBlock : BlockId{older};
  }

  // Walks everything: states, lists and counts agree. For tests and idle checks; O(blocks).
  Status check_integrity() const;

 private:
  static constexpr uint32_t kNone = UINT32_MAX;
  struct Block {
    uint32_t refs = 0;
    uint32_t prev = kNone;  // in the cached list
    uint32_t next = kNone;  // in the cached or the free list
    bool retained = false;
  };
  struct List {
    uint32_t head = kNone, tail = kNone;
    bool empty() const { return head == kNone; }
  };

  void push_free(uint32_t index);
  void push_cached(uint32_t index);
  void unlink_cached(uint32_t index);

  std::vector<Block> blocks_;
  uint32_t free_head_ = kNone;
  uint32_t free_count_ = 0;
  uint32_t reached_ = 0;
  List lru_;
  uint32_t cached_count_ = 0;
};

}  // namespace kvasir
