#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "tokenizer/merge_queue.h"
#include "tokenizer/merge_table.h"

namespace kvasir {

// What one call of encode needs besides the immutable tokenizer; reused from piece to piece.
struct BpeScratch {
  std::vector<TokenId> symbols;  // in: the piece, one token per byte or character
  std::vector<Merge> merges;     // [i]: the merge of symbol i with its right neighbour
  std::vector<uint32_t> previous, next;
  MergeQueue queue;
};

// Applies the merges to scratch->symbols, lowest rank first and leftmost among equals, until none is left,
// and appends the result to *out. At most 2^32 - 1 symbols. Same ids as HF's `tokenizers` BPE model.
void merge_symbols(const MergeTable& table, BpeScratch* scratch, std::vector<TokenId>* out);

// The two ways in which that is done; equal results. Short: scans for the minimum, O(n^2), fastest up to some
// dozens of symbols. Long: a queue, about linear.
void merge_short(const MergeTable& table, BpeScratch* scratch, std::vector<TokenId>* out);
void merge_long(const MergeTable& table, BpeScratch* scratch, std::vector<TokenId>* out);

}  // namespace kvasir
