#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace kvasir {

// Byte strings of all tokens back to back, by id.
class TokenBytes {
 public:
  void reserve(size_t tokens, size_t bytes);
  void append(std::string_view bytes);
  size_t size() const { return ends_.size(); }
  std::string_view operator[](TokenId id) const {
    const auto i = static_cast<size_t>(id);
    const size_t begin = i == 0 ? 0 : ends_[i - 1];
    return std::string_view(data_).substr(begin, ends_[i] - begin);
  }

 private:
  std::string data_;
  std::vector<size_t> ends_;
};

// Finds a token by its bytes. Of two tokens with the same bytes the first one added is found.
class TokenIndex {
 public:
  // `bytes` must outlive the index and stay where it is.
  TokenIndex(const TokenBytes* bytes, size_t max_tokens);
  void add(TokenId id);
  TokenId find(std::string_view bytes) const {
    return find(bytes, hash(bytes));
  }  // kNoToken when there is none

  // The same in steps, for many lookups at once: the memory of one is fetched while others are prepared.
  static uint64_t hash(std::string_view bytes);
  void prefetch(uint64_t hash) const { __builtin_prefetch(&slots_[hash & mask_]); }
  TokenId find(std::string_view bytes, uint64_t hash) const { return slots_[slot_of(bytes, hash)].id; }

 private:
  struct Slot {
    uint32_t tag = 0;
    TokenId id = kNoToken;
  };
  size_t slot_of(std::string_view bytes, uint64_t hash) const;

  const TokenBytes* bytes_;
  size_t mask_;
  std::vector<Slot> slots_;
};

}  // namespace kvasir
