#include "kvcache/kv_store.h"

#include <cstring>

#include "base/check.h"

namespace kvasir {

KvStore::KvStore(const KvLayout& layout, uint32_t blocks)
    : layout_(layout), blocks_(blocks), memory_(size_t{blocks} * layout.block_bytes()) {}

void KvStore::copy_block(BlockId from, BlockId to) {
  DCHECK(index_of(from) < blocks_ && index_of(to) < blocks_ && from != to);
  std::memcpy(block(to), block(from), layout_.block_bytes());
}

}  // namespace kvasir
