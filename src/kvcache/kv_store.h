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

  // Has the kernel find memory for one more of the first `count` blocks, in order, as long as there is one
  // that it was not asked for; false when there is none, or no kernel that does. The first write to a page
  // that has no memory waits for it, longest in virtual machines, whose host must find some too; a step would
  // wait.
  bool ready_one(uint32_t count);

  // Copies a whole block (copy-on-write).
  void copy_block(BlockId from, BlockId to);

 private:
  KvLayout layout_;
  uint32_t blocks_;
  AlignedBuffer memory_;
  uint32_t readied_ = 0;  // blocks that ready_one() went through
};

}  // namespace kvasir
