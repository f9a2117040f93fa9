#include "kvcache/kv_store.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace kvasir {

KvStore::KvStore(const KvLayout& layout, uint32_t blocks)
    : layout_(layout), blocks_(blocks), memory_(size_t{blocks} * layout.block_bytes()) {}

bool KvStore::ready_one(uint32_t count) {
  if (readied_ >= std::min(count, blocks_)) return false;
  const bool done = memory_.populate(readied_ * layout_.block_bytes(), layout_.block_bytes());
  readied_ = done ? readied_ + 1 : blocks_;  // what a kernel does not do once it is not asked for again
  return done;
}

void KvStore::copy_block(BlockId from, BlockId to) {
  DCHECK(index_of(from) < blocks_ && index_of(to) < blocks_ && from != to);
  std::memcpy(block(to), block(from), layout_.block_bytes());
}

}  // namespace kvasir
