#include "engine/shared_rows.h"

#include <algorithm>

#include "kernels/table.h"

namespace kvasir {

SharedRows::SharedRows(const KvLayout& layout, uint32_t sequences) : block_size_(layout.block_size()) {
  prefixes_.reserve(sequences);
  const auto& groups = layout.groups();
  const auto whole = std::find_if(groups.begin(), groups.end(), [](const auto& g) { return g.window == 0; });
  if (whole != groups.end()) group_ = static_cast<uint32_t>(whole - groups.begin());
  ids_per_entry_ = groups[group_].units;
}

uint32_t SharedRows::shared_positions(const Sequence& a, const Sequence& b) const {
  const uint32_t entries = std::min(a.computed, b.computed) / block_size_;
  const BlockId* ids = table(a);
  const auto equal = std::mismatch(ids, ids + size_t{entries} * ids_per_entry_, table(b)).first - ids;
  const auto positions = static_cast<uint32_t>(equal) / ids_per_entry_ * block_size_;
  return positions / kAttnChunk * kAttnChunk;
}

StepRows SharedRows::rows_of(const Sequence& sequence, uint32_t rows) {
  StepRows out{.rows = rows, .context = sequence.computed};
  if (sequence.computed < kAttnChunk || rows > kAttnMaxRows / 2) return out;
  const BlockId first = table(sequence)[0];
  if (first == kNoBlock) return out;
  const auto same = std::find_if(prefixes_.begin(), prefixes_.end(),
                                 [&](const Prefix& p) { return table(*p.first)[0] == first; });
  if (same == prefixes_.end()) {
    prefixes_.push_back({.first = &sequence, .rows = rows});
    return out;
  }
  const uint32_t shared = shared_positions(*same->first, sequence);
  // What all share decides; one more that would halve it stays alone.
  if (shared == 0 || 2 * shared < same->positions) return out;
  same->positions = same->positions == 0 ? shared : std::min(shared, same->positions);
  out.shared = same->positions;
  out.beside = same->rows;
  same->rows += rows;
  return out;
}

}  // namespace kvasir
