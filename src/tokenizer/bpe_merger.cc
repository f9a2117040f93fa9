#include "tokenizer/bpe_merger.h"

#include <algorithm>

namespace kvasir {
namespace {

constexpr size_t kShort = 32;
constexpr uint32_t kEnd = UINT32_MAX;

void find_all(const MergeTable& table, BpeScratch* scratch) {
  const std::vector<TokenId>& symbols = scratch->symbols;
  scratch->merges.assign(symbols.size(), Merge{});
  for (size_t i = 0; i + 1 < symbols.size(); ++i) scratch->merges[i] = table.find(symbols[i], symbols[i + 1]);
}

// The linked list of symbols that merge_long works on: a merged symbol stands at the place of its leftmost
// part.
class SymbolList {
 public:
  SymbolList(const MergeTable& table, BpeScratch* scratch) : table_(table), s_(*scratch) {
    const auto n = static_cast<uint32_t>(s_.symbols.size());
    s_.previous.resize(n);
    s_.next.resize(n);
    for (uint32_t i = 0; i < n; ++i) {
      s_.previous[i] = i == 0 ? kEnd : i - 1;
      s_.next[i] = i + 1 == n ? kEnd : i + 1;
      if (s_.merges[i].rank != Merge::kNoRank) s_.queue.push({s_.merges[i].rank, i});
    }
  }

  // A candidate is out of date when its symbol was swallowed or has another neighbour by now.
  bool is_current(MergeQueue::Candidate c) const { return s_.merges[c.position].rank == c.rank; }

  void merge_at(uint32_t left) {
    const uint32_t right = s_.next[left];
    s_.symbols[left] = s_.merges[left].merged;
    s_.merges[right] = Merge{};
    s_.next[left] = s_.next[right];
    if (s_.next[left] != kEnd) s_.previous[s_.next[left]] = left;
    refresh(left);
    if (s_.previous[left] != kEnd) refresh(s_.previous[left]);
  }

 private:
  void refresh(uint32_t at) {
    const uint32_t right = s_.next[at];
    s_.merges[at] = right == kEnd ? Merge{} : table_.find(s_.symbols[at], s_.symbols[right]);
    if (s_.merges[at].rank != Merge::kNoRank) s_.queue.push({s_.merges[at].rank, at});
  }

  const MergeTable& table_;
  BpeScratch& s_;
};

}  // namespace

void merge_short(const MergeTable& table, BpeScratch* scratch, std::vector<TokenId>* out) {
  find_all(table, scratch);
  std::vector<TokenId>& symbols = scratch->symbols;
  std::vector<Merge>& merges = scratch->merges;
  for (;;) {
    const auto best = std::min_element(merges.begin(), merges.end(),
                                       [](const Merge& a, const Merge& b) { return a.rank < b.rank; });
    if (best == merges.end() || best->rank == Merge::kNoRank) break;
    const auto i = static_cast<size_t>(best - merges.begin());
    symbols[i] = best->merged;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(i) + 1);
    merges.erase(best + 1);
    merges[i] = i + 1 < symbols.size() ? table.find(symbols[i], symbols[i + 1]) : Merge{};
    if (i > 0) merges[i - 1] = table.find(symbols[i - 1], symbols[i]);
  }
  out->insert(out->end(), symbols.begin(), symbols.end());
}

void merge_long(const MergeTable& table, BpeScratch* scratch, std::vector<TokenId>* out) {
  if (scratch->symbols.empty()) return;
  find_all(table, scratch);
  scratch->queue.clear();
  SymbolList list(table, scratch);
  while (!scratch->queue.empty()) {
    const MergeQueue::Candidate candidate = scratch->queue.pop();
    if (list.is_current(candidate)) list.merge_at(candidate.position);
  }
  for (uint32_t i = 0; i != kEnd; i = scratch->next[i]) out->push_back(scratch->symbols[i]);
}

void merge_symbols(const MergeTable& table, BpeScratch* scratch, std::vector<TokenId>* out) {
  if (scratch->symbols.size() <= kShort) {
    merge_short(table, scratch, out);
  } else {
    merge_long(table, scratch, out);
  }
}

}  // namespace kvasir
