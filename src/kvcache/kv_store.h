#pragma once

#include <cstddef>
#include <span>

#include "base/aligned_buffer.h"
#include "base/ids.h"
#include "kvcache/kv_layout.h"

namespace kvasir {

// The memory of all KV blocks: one allocation of count * layout.block_bytes(), fixed for the life of the
// engine.
class KvStore {
 public:
  KvStore(const KvLayout& layout, uint32_t blocks);

  const KvLayout& layout() const { return layout_; }
  uint32_t blocks() const { return blocks_; }
  std::byte* block(BlockId id) const { return memory_.data() + index_of(id) * layout_.block_bytes(); }

  std::span<std::byte> block_bytes(BlockId id) const { return {block(id), layout_.block_bytes()}; }

  // Copies a whole block (copy-on-write).
  void copy_block(BlockId from, BlockId to);

 private:
  KvLayout layout_;
  uint32_t blocks_;
  AlignedBuffer memory_;
};

}  // namespace kvasir
