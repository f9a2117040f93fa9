#pragma once

#include <cstdint>
#include <vector>

#include "perf/model_shape.h"

namespace kvasir {

// What one layer keeps per token.
//   MHA, GQA, MQA   2 K H e + K c       K and V; c bytes of scales per KV head (KvFormat::scale_bytes)
//   MLA             (R_kv + H_rope) e + c_mla    the latent and the rotated key, one for all heads;
//   DeepSeek-V2
//                   (arXiv 2405.04434), section 2.1, table 1
// Shazeer 2019 (arXiv 1911.02150) for MQA, Ainslie et al. 2023 (arXiv 2305.13245) for GQA.
double kv_bytes_per_token_layer(const ModelShape& shape, const KvFormat& kv);
// Bytes per token over all layers, while no window is full: L times that.
double kv_bytes_per_token(const ModelShape& shape, const KvFormat& kv);

// The same if each of N query heads kept K and V of its own, as in MHA: per layer N (2 H e + c); of MLA,
// whose heads decompress to K of H_nope + H_rope and V of H_v values, N ((H_nope + H_rope + H_v) e + c).
double mha_kv_bytes_per_token(const ModelShape& shape, const KvFormat& kv);

// Positions kept by a sequence of S, summed over the layers: min(S, window) where there is a window, else S.
uint64_t kv_positions(const ModelShape& shape, uint64_t sequence);

// Layers by window, for formulas: 0 first, then ascending.
struct WindowGroup {
  uint32_t window = 0;
  uint32_t layers = 0;
};
std::vector<WindowGroup> window_groups(const ModelShape& shape);

// kv_bytes_per_token_layer * kv_positions: without windows 2 K H S L e. Book, "Inference".
double kv_bytes_per_sequence(const ModelShape& shape, const KvFormat& kv, uint64_t sequence);

// Part of reserved KV memory that holds no token. Kwon et al. 2023, "Efficient Memory Management for Large
// Language Model Serving with PagedAttention" (arXiv 2309.06180), section 3.
// Contiguous, reserved for the longest allowed: 1 - S / S_max. 0 for S >= S_max.
double contiguous_waste(uint64_t sequence, uint64_t reserved);
// In blocks of `block` positions, only the last can be part empty: 1 - S / (ceil(S / block) * block); 0 for S
// 0.
double paged_waste(uint64_t sequence, uint64_t block);
// Average of the paged waste if the last block is filled evenly at random: ((block - 1) / 2) empty positions,
// (block - 1) / 2 / (S + (block - 1) / 2).
double expected_paged_waste(double mean_sequence, uint64_t block);
// How many times more sequences a paged cache holds: ratio of the positions each reserves,
// S_max / (ceil(S / block) * block).
double paging_gain(uint64_t sequence, uint64_t reserved, uint64_t block);

}  // namespace kvasir
