#include "perf/kv_formulas.h"

#include <algorithm>
#include <map>

namespace kvasir {
namespace {

uint64_t blocks_of(uint64_t sequence, uint64_t block) {
  return (sequence + block - 1) / block;
}

}  // namespace

double kv_bytes_per_token_layer(const ModelShape& s, const KvFormat& kv) {
  if (s.mla)
    return (static_cast<double>(s.mla->kv_lora_rank) + s.mla->qk_rope_head_dim) * kv.value_bytes() +
           kv.mla_scale_bytes;
  return 2.0 * s.kv_heads * s.head_dim * kv.value_bytes() + static_cast<double>(s.kv_heads) * kv.scale_bytes;
}

double kv_bytes_per_token(const ModelShape& s, const KvFormat& kv) {
  return s.layers * kv_bytes_per_token_layer(s, kv);
}

double mha_kv_bytes_per_token(const ModelShape& s, const KvFormat& kv) {
  const double numbers =
      s.mla ? static_cast<double>(s.mla->qk_nope_head_dim) + s.mla->qk_rope_head_dim + s.mla->v_head_dim
            : 2.0 * s.head_dim;
  return s.layers * (s.heads * numbers * kv.value_bytes() + static_cast<double>(s.heads) * kv.scale_bytes);
}

std::vector<WindowGroup> window_groups(const ModelShape& s) {
  std::map<uint32_t, uint32_t> layers;
  for (const uint32_t window : s.windows) ++layers[window];
  std::vector<WindowGroup> groups;
  groups.reserve(layers.size());
  for (const auto& [window, count] : layers) groups.push_back({window, count});
  return groups;
}

uint64_t kv_positions(const ModelShape& s, uint64_t sequence) {
  uint64_t positions = 0;
  for (const WindowGroup& group : window_groups(s))
    positions += group.layers * (group.window == 0 ? sequence : std::min<uint64_t>(sequence, group.window));
  return positions;
}

double kv_bytes_per_sequence(const ModelShape& s, const KvFormat& kv, uint64_t sequence) {
  return kv_bytes_per_token_layer(s, kv) * static_cast<double>(kv_positions(s, sequence));
}

double contiguous_waste(uint64_t sequence, uint64_t reserved) {
  if (sequence >= reserved) return 0;
  return 1 - static_cast<double>(sequence) / static_cast<double>(reserved);
}

double paged_waste(uint64_t sequence, uint64_t block) {
  if (sequence == 0 || block == 0) return 0;
  return 1 - static_cast<double>(sequence) / static_cast<double>(blocks_of(sequence, block) * block);
}

double expected_paged_waste(double mean_sequence, uint64_t block) {
  if (!(mean_sequence > 0) || block == 0) return 0;
  const double empty = static_cast<double>(block - 1) / 2;
  return empty / (mean_sequence + empty);
}

double paging_gain(uint64_t sequence, uint64_t reserved, uint64_t block) {
  if (sequence == 0 || block == 0) return 0;
  return static_cast<double>(reserved) / static_cast<double>(blocks_of(sequence, block) * block);
}

}  // namespace kvasir
