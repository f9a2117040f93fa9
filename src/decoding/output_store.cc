#include "decoding/output_store.h"

#include <algorithm>

namespace kvasir {

OutputStore::OutputStore(size_t bytes) {
  const size_t tokens = std::min<size_t>(bytes / kBytesPerToken, ContextTree::kNone);
  if (tokens < 4 * (kShortest + 1)) return;
  text_.assign(tokens, kNoToken);
  nodes_.resize(tokens);
}

void OutputStore::add(std::string_view tenant, std::span<const TokenId> output) {
  output = output.last(std::min(output.size(), text_.size() / 4));
  if (output.size() < kShortest || tenant.size() > kLongestTenant) return;
  const auto size = static_cast<uint32_t>(output.size());
  const uint32_t begin = make_room(size + 1);
  auto at = tenants_.find(tenant);
  if (at == tenants_.end()) at = tenants_.emplace(tenant, Tenant{.outputs = ContextTree(nodes_)}).first;
  std::copy(output.begin(), output.end(), text_.begin() + begin);
  text_[begin + size] = kNoToken;
  for (uint32_t i = begin; i < begin + size; ++i) at->second.outputs.insert(text_.data(), i);
  ++at->second.count;
  outputs_.push_back({.begin = begin, .end = begin + size, .tenant = at});
  next_ = begin + size + 1;
  tokens_ += size;
}

// Where so many tokens may be written, the outputs that were there dropped.
uint32_t OutputStore::make_room(uint32_t tokens) {
  if (next_ + tokens > text_.size()) {
    while (!outputs_.empty() && outputs_.front().begin >= next_) drop_oldest();
    next_ = 1;
  }
  // The oldest ones stand behind next_; the newest before it.
  while (!outputs_.empty() && outputs_.front().begin >= next_ && outputs_.front().begin < next_ + tokens)
    drop_oldest();
  return next_;
}

void OutputStore::drop_oldest() {
  const Output& oldest = outputs_.front();
  Tenant& tenant = oldest.tenant->second;
  for (uint32_t i = oldest.begin; i < oldest.end; ++i) tenant.outputs.erase(text_.data(), i);
  tokens_ -= oldest.end - oldest.begin;
  if (--tenant.count == 0) tenants_.erase(oldest.tenant);
  outputs_.pop_front();
}

const ContextTree* OutputStore::outputs_of(std::string_view tenant) const {
  const auto at = tenants_.find(tenant);
  return at == tenants_.end() ? nullptr : &at->second.outputs;
}

}  // namespace kvasir
