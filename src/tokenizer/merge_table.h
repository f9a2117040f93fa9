#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/ids.h"

namespace kvasir {

// What two neighbouring tokens become. A lower rank merges first.
struct Merge {
  static constexpr uint32_t kNoRank = std::numeric_limits<uint32_t>::max();
  uint32_t rank = kNoRank;  // kNoRank: the two do not merge
  TokenId merged = kNoToken;
};

// The merges of a BPE vocabulary, by pair of token ids.
class MergeTable {
 public:
  // At most `max_merges` pairs may be set.
  explicit MergeTable(size_t max_merges);
  // The merge of (left, right) from now on; a later one replaces an earlier one, as in HF's `tokenizers`.
  void set(TokenId left, TokenId right, Merge merge);
  Merge find(TokenId left, TokenId right) const;
  // Starts to fetch the memory that set or find will need.
  void prefetch(TokenId left, TokenId right) const;

 private:
  struct Slot {
    uint64_t pair = kFree;
    Merge merge;
  };
  static constexpr uint64_t kFree = std::numeric_limits<uint64_t>::max();  // ids are not negative
  size_t slot_of(uint64_t pair) const;

  size_t mask_;
  std::vector<Slot> slots_;
};

}  // namespace kvasir
