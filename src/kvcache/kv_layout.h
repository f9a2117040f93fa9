#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/kv_type.h"
#include "base/result.h"

namespace kvasir {

// What one layer keeps per token: K and V of kv_heads x head_dim values; or, where `latent` is not 0, one row
// of head_dim values for all heads, of which the first `latent` are V too (multi-head latent attention, arXiv
// 2405.04434: the latent, then the rotated key). window 0 sees everything.
struct KvLayerSpec {
  uint32_t kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t window = 0;
  uint32_t latent = 0;
};

// How the layers of a model share one pool of equal blocks. Layers with the same window form a group; a
// group's sequence keeps its own block table, so that blocks which left a window can be given back. So that
// groups of different depth can draw from one pool, layers are dealt out in units of equal size (the greatest
// common divisor of the groups' layer counts); a table entry of a group with u units is u block ids. A model
// without windows is one group of one unit: an entry is one block that holds all layers.
class KvLayout {
 public:
  struct Group {
    uint32_t window = 0;  // 0: full attention
    uint32_t units = 0;   // block ids per table entry
  };
  struct Layer {
    uint32_t group = 0;
    uint32_t unit = 0;        // which id of the group's table entry
    size_t offset_bytes = 0;  // of this layer's planes inside the block: K, V, then the scales if there are
    uint32_t kv_heads = 0;
    uint32_t head_dim = 0;
    uint32_t latent = 0;     // not 0: rows, and no plane of V
    size_t plane_bytes = 0;  // of K, or of the rows; V takes as many
  };

  // block_size: tokens per block, a multiple of 16. Layers that share a pool must keep the same bytes per
  // token.
  static Result<KvLayout> make(std::span<const KvLayerSpec> layers, uint32_t block_size,
                               KvType type = KvType::kF16);

  KvType type() const { return type_; }
  uint32_t block_size() const { return block_size_; }
  size_t block_bytes() const { return block_bytes_; }
  const std::vector<Group>& groups() const { return groups_; }
  const Layer& layer(uint32_t index) const { return layers_[index]; }
  uint32_t layer_count() const { return static_cast<uint32_t>(layers_.size()); }

  // The most blocks that a sequence of up to `tokens` tokens holds between steps, over all groups (windows
  // considered). Saturates at UINT32_MAX.
  uint32_t blocks_for(uint64_t tokens) const;
  // Block ids of one table entry, over all groups: blocks that one more block of tokens costs while no window
  // is full.
  uint32_t units() const;
  // KV bytes that one more token costs while no window is full.
  size_t bytes_per_token() const;

 private:
  KvType type_ = KvType::kF16;
  uint32_t block_size_ = 0;
  size_t block_bytes_ = 0;
  std::vector<Group> groups_;
  std::vector<Layer> layers_;
};

// The first position that a row at `position` sees in a layer with this window.
constexpr uint32_t first_visible(uint32_t window, uint32_t position) {
  return window == 0 || position < window ? 0 : position - window + 1;
}

}  // namespace kvasir
