#include "tokenizer/added_tokens.h"

namespace kvasir {

uint32_t AddedTokens::child(uint32_t node, uint8_t byte) const {
  const auto it = children_.find((static_cast<uint64_t>(node) << 8) | byte);
  return it == children_.end() ? 0 : it->second;
}

void AddedTokens::add(std::string_view text, TokenId id, bool control) {
  if (text.empty()) return;
  begins_[static_cast<uint8_t>(text[0])] = true;
  uint32_t node = 0;
  for (const char c : text) {
    const uint64_t edge = (static_cast<uint64_t>(node) << 8) | static_cast<uint8_t>(c);
    const auto [it, added] = children_.try_emplace(edge, static_cast<uint32_t>(nodes_.size()));
    if (added) nodes_.emplace_back();
    node = it->second;
  }
  if (nodes_[node].id == kNoToken) nodes_[node] = {id, control};
}

std::optional<AddedTokens::Match> AddedTokens::Search::longest_at(size_t pos) const {
  const bool in_region = !regions_.empty() && pos >= regions_.front().begin;
  const size_t control_end = in_region ? regions_.front().end : 0;
  std::optional<Match> longest;
  uint32_t node = 0;
  for (size_t end = pos; end < text_.size();) {
    node = tokens_.child(node, static_cast<uint8_t>(text_[end++]));
    if (node == 0) break;
    const Node& n = tokens_.nodes_[node];
    if (n.id != kNoToken && (!n.control || end <= control_end)) longest = Match{pos, end, n.id};
  }
  return longest;
}

std::optional<AddedTokens::Match> AddedTokens::Search::next(size_t pos) {
  for (; pos < text_.size(); ++pos) {
    if (!tokens_.begins_[static_cast<uint8_t>(text_[pos])]) continue;
    while (!regions_.empty() && regions_.front().end <= pos) regions_ = regions_.subspan(1);
    if (auto match = longest_at(pos)) return match;
  }
  return std::nullopt;
}

}  // namespace kvasir
