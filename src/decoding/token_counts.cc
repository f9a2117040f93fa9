#include "decoding/token_counts.h"

#include <algorithm>
#include <utility>

namespace kvasir {

TokenCounts::Entry& TokenCounts::probe(TokenId token) {
  const size_t mask = table_.size() - 1;
  size_t i = (static_cast<uint32_t>(token) * 0x9E3779B97F4A7C15u >> 32) & mask;
  while (table_[i].token != token && table_[i].token != kNoToken) i = (i + 1) & mask;
  return table_[i];
}

TokenCounts::Entry& TokenCounts::slot(TokenId token) {
  if (2 * (used_ + 1) > table_.size()) grow();
  Entry& e = probe(token);
  if (e.token == kNoToken) {
    e.token = token;
    ++used_;
  }
  return e;
}

void TokenCounts::grow() {
  std::vector<Entry> old(std::max<size_t>(64, table_.size() * 2));
  std::swap(old, table_);
  for (const Entry& e : old)
    if (e.token != kNoToken) probe(e.token) = e;
}

}  // namespace kvasir
