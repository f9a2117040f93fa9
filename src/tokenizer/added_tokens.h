#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"

namespace kvasir {

// The tokens that are found in the text before anything else is done to it: control tokens, where the text
// may hold them, and user-defined ones everywhere. As in HF's `tokenizers` the leftmost match wins, then the
// longest.
class AddedTokens {
 public:
  // A second token of the same text is ignored; so is an empty text.
  void add(std::string_view text, TokenId id, bool control);

  struct Match {
    size_t begin = 0, end = 0;
    TokenId id = kNoToken;
  };
  struct Region {
    size_t begin = 0, end = 0;
  };
  // Goes through one text, of which only `control_regions` (ascending, apart) may hold control tokens. Refers
  // to all three.
  class Search {
   public:
    Search(const AddedTokens& tokens, std::string_view text, std::span<const Region> control_regions)
        : tokens_(tokens), text_(text), regions_(control_regions) {}
    // The first match that begins at or after `pos`, which never goes back from call to call.
    std::optional<Match> next(size_t pos);

   private:
    std::optional<Match> longest_at(size_t pos) const;

    const AddedTokens& tokens_;
    std::string_view text_;
    std::span<const Region> regions_;  // the first one ends behind the current position
  };

 private:
  struct Node {
    TokenId id = kNoToken;
    bool control = false;
  };
  uint32_t child(uint32_t node, uint8_t byte) const;  // 0 when there is none

  std::vector<Node> nodes_ = std::vector<Node>(1);   // a trie; the root is node 0
  std::unordered_map<uint64_t, uint32_t> children_;  // node << 8 | byte
  std::array<bool, 256> begins_{};                   // whether some token begins with the byte
};

}  // namespace kvasir
