#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "decoding/context_tree.h"

namespace kvasir {

// What was generated before, for each tenant apart: none is ever shown another's. Bounded in bytes for all of
// them together; the oldest outputs go first, whosever they are. Not thread-safe.
class OutputStore {
 public:
  static constexpr uint32_t kShortest = 32;      // shorter outputs are not worth their place
  static constexpr size_t kLongestTenant = 256;  // bytes; outputs of longer names are not kept

  // All that it will hold, allocated here but for the records of tenants. Holds nothing if bytes is too few
  // for four outputs of the least length.
  explicit OutputStore(size_t bytes);

  // Keeps the end of `output`, at most a quarter of the store.
  void add(std::string_view tenant, std::span<const TokenId> output);

  // The tenant's outputs, each ended by a kNoToken; nullptr where there are none.
  const ContextTree* outputs_of(std::string_view tenant) const;
  std::span<const TokenId> text() const { return text_; }

  size_t tokens() const { return tokens_; }
  size_t tenants() const { return tenants_.size(); }
  // The most that it ever takes, records of tenants included.
  size_t bytes_bound() const { return text_.size() * kBytesPerToken; }

 private:
  struct Tenant {
    ContextTree outputs;
    uint32_t count = 0;
  };
  using Tenants = std::map<std::string, Tenant, std::less<>>;
  struct Output {
    uint32_t begin, end;  // in text_; a kNoToken follows
    Tenants::iterator tenant;
  };
  // The record of a tenant and that of its output, for each kShortest tokens: a node of the map has a header
  // of four pointers.
  static constexpr size_t kBytesPerRecord =
      sizeof(Output) + sizeof(Tenants::value_type) + 4 * sizeof(void*) + kLongestTenant;
  static constexpr size_t kBytesPerToken =
      sizeof(TokenId) + sizeof(ContextTree::Node) + (kBytesPerRecord + kShortest - 1) / kShortest;

  uint32_t make_room(uint32_t tokens);
  void drop_oldest();

  std::vector<TokenId> text_;  // begins with a kNoToken
  std::vector<ContextTree::Node> nodes_;
  Tenants tenants_;
  std::deque<Output> outputs_;  // oldest first; each begins where the one before ended, or at the beginning
  uint32_t next_ = 1;
  size_t tokens_ = 0;
};

}  // namespace kvasir
