#include "tokenizer/merge_table.h"

#include <bit>

namespace kvasir {
namespace {

uint64_t pair_of(TokenId left, TokenId right) {
  return (static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32) | static_cast<uint32_t>(right);
}

// The finaliser of MurmurHash3: every bit of the pair reaches every bit of the slot number.
uint64_t mix(uint64_t x) {
  x ^= x >> 33;
  x *= 0xFF51AFD7ED558CCDull;
  x ^= x >> 33;
  x *= 0xC4CEB9FE1A85EC53ull;
  return x ^ (x >> 33);
}

}  // namespace

MergeTable::MergeTable(size_t max_merges) : mask_(std::bit_ceil(2 * max_merges + 1) - 1), slots_(mask_ + 1) {}

size_t MergeTable::slot_of(uint64_t pair) const {
  size_t slot = mix(pair) & mask_;
  while (slots_[slot].pair != kFree && slots_[slot].pair != pair) slot = (slot + 1) & mask_;
  return slot;
}

void MergeTable::set(TokenId left, TokenId right, Merge merge) {
  const uint64_t pair = pair_of(left, right);
  slots_[slot_of(pair)] = {pair, merge};
}

Merge MergeTable::find(TokenId left, TokenId right) const {
  return slots_[slot_of(pair_of(left, right))].merge;
}

void MergeTable::prefetch(TokenId left, TokenId right) const {
  __builtin_prefetch(&slots_[mix(pair_of(left, right)) & mask_]);
}

}  // namespace kvasir
