#include "decoding/context_tree.h"

#include <algorithm>
#include <array>

namespace kvasir {
namespace {

// Of positions, not of tokens: nobody who writes text can choose them. (The finaliser of MurmurHash3.)
uint32_t priority(uint32_t position) {
  uint32_t h = position + 0x9E3779B9u;
  h = (h ^ h >> 16) * 0x85EBCA6Bu;
  h = (h ^ h >> 13) * 0xC2B2AE35u;
  return h ^ h >> 16;
}

}  // namespace

// The way from the root down: nodes, and to which side of each it went on.
struct ContextTree::Path {
  struct Turn {
    uint32_t node;
    bool right;
  };
  std::array<Turn, kPath> turns;
  uint32_t size = 0;
  Place place;
  bool found = false;  // the last node is the position itself
};

uint32_t ContextTree::common(const Context& a, const Context& b, uint32_t from) {
  uint32_t n = from;
  while (n < kDepth) {
    const TokenId token = a.at(n);
    if (token == kNoToken || token != b.at(n)) break;
    ++n;
  }
  return n;
}

// Follows the order down to a leaf, or to `position` itself; false where the path is too long.
bool ContextTree::descend(const TokenId* text, const Context& context, uint32_t position, Path& path) const {
  // What the context shares with the nearest nodes on its sides it shares with all between them.
  uint32_t common_before = 0, common_after = 0;
  for (uint32_t node = root_; node != kNone;) {
    if (path.size == kPath) return false;
    if (node == position) {
      path.turns[path.size++] = {node, false};
      path.found = true;
      return true;
    }
    const Context other = context_at(text, node);
    const uint32_t n = common(context, other, std::min(common_before, common_after));
    const bool right =
        n < kDepth && other.at(n) != context.at(n) ? other.at(n) < context.at(n) : node < position;
    path.turns[path.size++] = {node, right};
    (right ? common_before : common_after) = n;
    (right ? path.place.before : path.place.after) = node;
    node = right ? nodes_[node].right : nodes_[node].left;
  }
  return true;
}

ContextTree::Place ContextTree::find(const TokenId* text, const Context& context) const {
  Path path;
  descend(text, context, kNone, path);
  return path.place;
}

uint32_t& ContextTree::child_on(const Path& path, uint32_t depth) {
  if (depth == 0) return root_;
  const auto& [node, right] = path.turns[depth - 1];
  return right ? nodes_[node].right : nodes_[node].left;
}

void ContextTree::insert(const TokenId* text, uint32_t position) {
  Path path;
  if (!descend(text, context_at(text, position), position, path) || path.found) return;
  link(position, path);
  Node& node = nodes_[position];
  node.before = path.place.before;
  node.after = path.place.after;
  if (node.before != kNone) nodes_[node.before].after = position;
  if (node.after != kNone) nodes_[node.after].before = position;
}

// Puts the node where its priority belongs on the path, and what the path led through below it to its sides.
void ContextTree::link(uint32_t position, const Path& path) {
  uint32_t depth = 0;
  while (depth < path.size && priority(path.turns[depth].node) >= priority(position)) ++depth;
  child_on(path, depth) = position;
  uint32_t* lesser = &nodes_[position].left;
  uint32_t* greater = &nodes_[position].right;
  for (; depth < path.size; ++depth) {
    const auto& [node, right] = path.turns[depth];
    (right ? *lesser : *greater) = node;
    (right ? lesser : greater) = right ? &nodes_[node].right : &nodes_[node].left;
  }
  *lesser = *greater = kNone;
}

void ContextTree::erase(const TokenId* text, uint32_t position) {
  Path path;
  if (!descend(text, context_at(text, position), position, path) || !path.found) return;
  const Node node = nodes_[position];
  child_on(path, path.size - 1) = merge(node.left, node.right);
  if (node.before != kNone) nodes_[node.before].after = node.after;
  if (node.after != kNone) nodes_[node.after].before = node.before;
}

// All of `left` is before all of `right`.
uint32_t ContextTree::merge(uint32_t left, uint32_t right) {
  uint32_t root = kNone;
  uint32_t* hook = &root;
  while (left != kNone && right != kNone) {
    if (priority(left) >= priority(right)) {
      *hook = left;
      hook = &nodes_[left].right;
      left = *hook;
    } else {
      *hook = right;
      hook = &nodes_[right].left;
      right = *hook;
    }
  }
  *hook = left != kNone ? left : right;
  return root;
}

}  // namespace kvasir
