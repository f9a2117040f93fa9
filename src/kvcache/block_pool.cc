#include "kvcache/block_pool.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/check.h"

namespace kvasir {

BlockPool::BlockPool(uint32_t blocks) : blocks_(blocks) {
  for (uint32_t i = blocks; i-- > 0;)
    push_free(i);  // low ids are handed out first, so untouched memory stays untouched
}

BlockId BlockPool::take() {
  CHECK(free_head_ != kNone);
  const uint32_t index = free_head_;
  Block& b = blocks_[index];
  free_head_ = b.next;
  --free_count_;
  reached_ = std::max(reached_, index + 1);
  b.next = kNone;
  b.refs = 1;
  return BlockId{index};
}

void BlockPool::share(BlockId id) {
  const uint32_t index = index_of(id);
  Block& b = blocks_[index];
  DCHECK(b.refs > 0 || b.retained);
  if (b.refs == 0) unlink_cached(index);
  ++b.refs;
}

void BlockPool::release(BlockId id) {
  const uint32_t index = index_of(id);
  Block& b = blocks_[index];
  CHECK(b.refs > 0);
  if (--b.refs > 0) return;
  if (b.retained)
    push_cached(index);
  else
    push_free(index);
}

void BlockPool::retain(BlockId id) {
  Block& b = blocks_[index_of(id)];
  DCHECK(b.refs > 0);
  b.retained = true;
}

void BlockPool::forget(BlockId id) {
  const uint32_t index = index_of(id);
  Block& b = blocks_[index];
  DCHECK(b.retained);
  b.retained = false;
  if (b.refs == 0) {
    unlink_cached(index);
    push_free(index);
  }
}

void BlockPool::push_free(uint32_t index) {
  Block& b = blocks_[index];
  b.next = free_head_;
  free_head_ = index;
  ++free_count_;
}

void BlockPool::push_cached(uint32_t index) {
  Block& b = blocks_[index];
  b.prev = lru_.tail;
  b.next = kNone;
  if (lru_.empty())
    lru_.head = index;
  else
    blocks_[lru_.tail].next = index;
  lru_.tail = index;
  ++cached_count_;
}

void BlockPool::unlink_cached(uint32_t index) {
  Block& b = blocks_[index];
  if (b.prev == kNone)
    lru_.head = b.next;
  else
    blocks_[b.prev].next = b.next;
  if (b.next == kNone)
    lru_.tail = b.prev;
  else
    blocks_[b.next].prev = b.prev;
  b.prev = b.next = kNone;
  --cached_count_;
}

Status BlockPool::check_integrity() const {
  std::vector<uint8_t> listed(blocks_.size(), 0);
  uint32_t free_seen = 0;
  for (uint32_t i = free_head_; i != kNone; i = blocks_[i].next, ++free_seen) {
    if (listed[i]++ != 0 || blocks_[i].refs != 0 || blocks_[i].retained)
      return internal_error(fmt::format("block {} of the free list is listed twice, owned or retained", i));
  }
  uint32_t cached_seen = 0;
  uint32_t prev = kNone;
  for (uint32_t i = lru_.head; i != kNone; prev = i, i = blocks_[i].next, ++cached_seen) {
    if (listed[i]++ != 0 || blocks_[i].refs != 0 || !blocks_[i].retained || blocks_[i].prev != prev)
      return internal_error(
          fmt::format("block {} of the cached list is listed twice, owned or not retained", i));
  }
  uint32_t owned_seen = 0;
  for (const Block& b : blocks_) owned_seen += b.refs > 0;
  if (free_seen != free_count_ || cached_seen != cached_count_ || lru_.tail != prev || owned_seen != owned())
    return internal_error(fmt::format(
        "blocks do not add up: {} free ({} counted), {} cached ({} counted), {} owned ({} counted) of {}",
        free_count_, free_seen, cached_count_, cached_seen, owned(), owned_seen, total()));
  return {};
}

}  // namespace kvasir
