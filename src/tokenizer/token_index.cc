#include "tokenizer/token_index.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <bit>

namespace kvasir {

void TokenBytes::reserve(size_t tokens, size_t bytes) {
  ends_.reserve(tokens);
  data_.reserve(bytes);
}

void TokenBytes::append(std::string_view bytes) {
  data_ += bytes;
  ends_.push_back(data_.size());
}

TokenIndex::TokenIndex(const TokenBytes* bytes, size_t max_tokens)
    : bytes_(bytes), mask_(std::bit_ceil(max_tokens + max_tokens / 2 + 1) - 1), slots_(mask_ + 1) {}

uint64_t TokenIndex::hash(std::string_view bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

// The slot that holds `bytes`, or the free one where they belong.
size_t TokenIndex::slot_of(std::string_view bytes, uint64_t hash) const {
  const auto tag = static_cast<uint32_t>(hash >> 32);
  size_t slot = hash & mask_;
  while (slots_[slot].id != kNoToken && (slots_[slot].tag != tag || (*bytes_)[slots_[slot].id] != bytes))
    slot = (slot + 1) & mask_;
  return slot;
}

void TokenIndex::add(TokenId id) {
  const std::string_view bytes = (*bytes_)[id];
  const uint64_t hash_of_bytes = hash(bytes);
  Slot& slot = slots_[slot_of(bytes, hash_of_bytes)];
  if (slot.id == kNoToken) slot = {static_cast<uint32_t>(hash_of_bytes >> 32), id};
}

}  // namespace kvasir
