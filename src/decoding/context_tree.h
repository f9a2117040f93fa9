#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace kvasir {

// What stands before a place in a text, that place included; read backwards from `last`. Ends after `size`
// tokens or before a kNoToken.
struct Context {
  const TokenId* last = nullptr;
  uint32_t size = 0;

  TokenId at(uint32_t i) const { return i < size ? *(last - i) : kNoToken; }
};

// Positions of a text in the order of their contexts: those that look alike over many tokens stand side by
// side. All occurrences of what a text ends with, for every length at once, are so found in O(log n), and the
// most similar places after them. It is the leaf order of a suffix tree of the reversed text, bounded to
// kDepth tokens; positions whose contexts agree that far stand in the order of the text.
//
// A treap (Seidel and Aragon, Randomized search trees, 1996) whose priorities are a hash of the position,
// with the order threaded through it as a list. 16 bytes a position, which the caller holds: several trees
// may share one array of nodes where no position is in two of them. Nothing is copied: every call is given
// the text, whose tokens before and at the inserted positions must not change meanwhile.
class ContextTree {
 public:
  static constexpr uint32_t kDepth = 32;
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Node {
    uint32_t left, right;    // children
    uint32_t before, after;  // in the order; kNone at the ends
  };
  // Positions beside a context: the last one that is not greater than it, and the one after.
  struct Place {
    uint32_t before = kNone;
    uint32_t after = kNone;
  };

  ContextTree() = default;
  explicit ContextTree(std::span<Node> nodes) : nodes_(nodes) {}

  bool empty() const { return root_ == kNone; }
  // `position` is a place in `text`, not yet in the tree and below the number of nodes. A tree whose branches
  // are longer than kPath (improbable to the point of malice) leaves the position out.
  void insert(const TokenId* text, uint32_t position);
  // Does nothing where it is not in the tree.
  void erase(const TokenId* text, uint32_t position);
  Place find(const TokenId* text, const Context& context) const;

  uint32_t before(uint32_t position) const { return nodes_[position].before; }
  uint32_t after(uint32_t position) const { return nodes_[position].after; }

  static Context context_at(const TokenId* text, uint32_t position) {
    return {text + position, position + 1};
  }
  // The number of tokens in which the contexts agree from their end back, at most kDepth; it is known that
  // they agree in the first `from`.
  static uint32_t common(const Context& a, const Context& b, uint32_t from = 0);

 private:
  static constexpr uint32_t kPath = 120;

  struct Path;
  bool descend(const TokenId* text, const Context& context, uint32_t position, Path& path) const;
  void link(uint32_t position, const Path& path);
  uint32_t& child_on(const Path& path, uint32_t depth);
  uint32_t merge(uint32_t left, uint32_t right);

  std::span<Node> nodes_;
  uint32_t root_ = kNone;
};

}  // namespace kvasir
