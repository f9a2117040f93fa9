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
    : bytes_(bytes), mask_(std::bit_ceil(2 * max_tokens + 1) - 1), slots_(mask_ + 1) {}

// The slot that holds `bytes`, or the free one where they belong.
size_t TokenIndex::slot_of(std::string_view bytes, uint32_t* tag) const {
  const uint64_t hash = XXH3_64bits(bytes.data(), bytes.size());
  *tag = static_cast<uint32_t>(hash >> 32);
  size_t slot = hash & mask_;
  while (slots_[slot].id != kNoToken && (slots_[slot].tag != *tag || (*bytes_)[slots_[slot].id] != bytes))
    slot = (slot + 1) & mask_;
  return slot;
}

void TokenIndex::add(TokenId id) {
  uint32_t tag = 0;
  Slot& slot = slots_[slot_of((*bytes_)[id], &tag)];
  if (slot.id == kNoToken) slot = {tag, id};
}

TokenId TokenIndex::find(std::string_view bytes) const {
  uint32_t tag = 0;
  return slots_[slot_of(bytes, &tag)].id;
}

}  // namespace kvasir
