#include "kvcache/kv_layout.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

namespace kvasir {
namespace {

constexpr uint32_t kTile = 16;  // tokens per tile of the K plane
constexpr size_t kMaxBlockBytes = size_t{1} << 40;

// Bytes of one layer's K and V planes, or its latent rows, and their scales in a block; 0 when that is
// absurd.
size_t layer_bytes(const KvLayerSpec& layer, uint32_t block_size, KvType type) {
  size_t tokens = 1;  // of one head
  for (const uint32_t factor : {layer.kv_heads, block_size}) {
    if (__builtin_mul_overflow(tokens, size_t{factor}, &tokens) || tokens > kMaxBlockBytes) return 0;
  }
  const size_t planes = layer.latent == 0 ? 2 : 1;
  const size_t values = planes * kv_element_bytes(type) * layer.head_dim;
  size_t bytes = 0;
  if (values == 0 || __builtin_mul_overflow(tokens, values + kv_scale_bytes(type), &bytes)) return 0;
  return bytes > kMaxBlockBytes ? 0 : bytes;
}

Status check_layers(std::span<const KvLayerSpec> layers, uint32_t block_size, KvType type) {
  if (block_size == 0 || block_size % kTile != 0)
    return invalid_argument(fmt::format("block size {} is not a multiple of {}", block_size, kTile));
  if (layers.empty()) return invalid_argument("a KV layout needs at least one layer");
  const size_t first = layer_bytes(layers[0], block_size, type);
  for (size_t i = 0; i < layers.size(); ++i) {
    const size_t bytes = layer_bytes(layers[i], block_size, type);
    const KvLayerSpec& l = layers[i];
    if (l.latent != 0 && (l.kv_heads != 1 || l.latent > l.head_dim))
      return invalid_argument(
          fmt::format("layer {}: {} KV heads of {} values with latents of {}: latent rows have one head that "
                      "holds the latent",
                      i, l.kv_heads, l.head_dim, l.latent));
    if (bytes == 0)
      return invalid_argument(
          fmt::format("layer {}: {} KV heads of {} values and blocks of {} tokens make no KV block", i,
                      layers[i].kv_heads, layers[i].head_dim, block_size));
    if (bytes != first)
      return unsupported(fmt::format(
          "layer {} keeps {} bytes per token, layer 0 keeps {}: layers must agree to share a pool", i,
          bytes / block_size, first / block_size));
  }
  return {};
}

uint64_t divide_up(uint64_t a, uint64_t b) {
  return a / b + (a % b != 0);
}

}  // namespace

Result<KvLayout> KvLayout::make(std::span<const KvLayerSpec> layers, uint32_t block_size, KvType type) {
  KVASIR_RETURN_IF_ERROR(check_layers(layers, block_size, type));
  KvLayout layout;
  layout.type_ = type;
  layout.block_size_ = block_size;

  std::vector<uint32_t> depth;  // layers per group
  for (const KvLayerSpec& spec : layers) {
    const auto same = [&](const Group& g) { return g.window == spec.window; };
    const auto it = std::find_if(layout.groups_.begin(), layout.groups_.end(), same);
    const size_t group = static_cast<size_t>(it - layout.groups_.begin());
    if (it == layout.groups_.end()) {
      layout.groups_.push_back({spec.window, 0});
      depth.push_back(0);
    }
    ++depth[group];
    const size_t plane = kv_element_bytes(type) * spec.kv_heads * spec.head_dim * block_size;
    layout.layers_.push_back({static_cast<uint32_t>(group), depth[group] - 1, 0, spec.kv_heads, spec.head_dim,
                              spec.latent, plane});
  }

  const uint32_t per_unit = std::accumulate(depth.begin(), depth.end(), 0u, std::gcd<uint32_t, uint32_t>);
  const size_t bytes = layer_bytes(layers[0], block_size, type);
  if (bytes > kMaxBlockBytes / per_unit)
    return invalid_argument(
        fmt::format("a KV block of {} layers with {} bytes each is too large", per_unit, bytes));
  layout.block_bytes_ = bytes * per_unit;
  for (size_t g = 0; g < depth.size(); ++g) layout.groups_[g].units = depth[g] / per_unit;
  for (Layer& layer : layout.layers_) {
    const uint32_t rank = layer.unit;  // among the group's layers
    layer.unit = rank / per_unit;
    layer.offset_bytes = rank % per_unit * bytes;
  }
  return layout;
}

uint32_t KvLayout::blocks_for(uint64_t tokens) const {
  uint64_t blocks = 0;
  for (const Group& group : groups_) {
    uint64_t entries = divide_up(tokens, block_size_);
    if (group.window != 0) {
      // An interval of `window` positions touches at most this many blocks, wherever it starts.
      const uint64_t touched = (uint64_t{group.window} + block_size_ - 2) / block_size_ + 1;
      entries = std::min(entries, touched);
    }
    blocks += entries * group.units;
  }
  return static_cast<uint32_t>(std::min<uint64_t>(blocks, UINT32_MAX));
}

uint32_t KvLayout::units() const {
  uint32_t units = 0;
  for (const Group& group : groups_) units += group.units;
  return units;
}

size_t KvLayout::bytes_per_token() const {
  return block_bytes_ / block_size_ * units();
}

}  // namespace kvasir
