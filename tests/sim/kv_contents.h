#pragma once

#include <compare>
#include <cstdint>
#include <span>
#include <vector>

#include "base/result.h"
#include "kvcache/block_table.h"
#include "scenario.h"

namespace kvasir::sim {

// What K and V of a token are worth here: a hash of its salt and of every token up to it. Two positions have
// the same value exactly when their K and V may be shared.
uint64_t first_value(uint32_t salt, TokenId token);
uint64_t next_value(uint64_t before, TokenId token);

// A KV cache that holds no numbers but remembers, slot by slot, what was written: so that a block that is
// shared wrongly, read stale, overwritten or not copied is seen where it is read.
class KvContents {
 public:
  KvContents(const KvLayout& layout, const BlockPool& pool);

  void copy(const BlockCopy& copy);
  // Row `position` of a sequence is computed. Errors: a block that is shared, cached or not there.
  Status write(const BlockTable& table, uint32_t position, TokenId token, uint64_t value);
  // Rows [first, first + rows) read all they see: `values` are those of the sequence's tokens.
  Status read(const BlockTable& table, uint32_t first, uint32_t rows, std::span<const uint64_t> values) const;
  // The value that the last layer's table holds for a position.
  uint64_t value_at(const BlockTable& table, uint32_t position) const;

  // Every retained block holds the tokens of one prefix, all of them.
  Status check_retained() const;

  // The longest prefix that the retained blocks could serve, at most max_tokens, the last block perhaps in
  // part: what PrefixCache::lookup() must find. Found by searching all blocks' contents.
  class Index {
   public:
    explicit Index(const KvContents& contents);
    uint32_t longest(std::span<const uint64_t> values, uint32_t max_tokens) const;

   private:
    struct Entry {
      uint64_t value;
      uint32_t place;
      auto operator<=>(const Entry&) const = default;
    };
    bool has_all_units(uint32_t group, uint64_t value) const;
    const KvLayout& layout_;
    std::vector<Entry> last_slots_;  // sorted
  };

 private:
  struct Slot {
    uint64_t value = 0;
    uint32_t position = UINT32_MAX;
    uint32_t place = UINT32_MAX;  // group and unit
    TokenId token = kNoToken;
  };
  static uint32_t place_of(uint32_t group, uint32_t unit) { return group << 8 | unit; }
  const Slot& slot(const BlockTable& table, uint32_t group, uint32_t unit, uint32_t position) const;

  const KvLayout& layout_;
  const BlockPool& pool_;
  std::vector<Slot> slots_;
};

}  // namespace kvasir::sim
