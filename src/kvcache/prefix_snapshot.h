#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/sha256.h"
#include "kvcache/block_pool.h"
#include "kvcache/kv_layout.h"
#include "kvcache/prefix_cache.h"

namespace kvasir {

// Which prefixes a cache holds and in which blocks, as a file keeps it: a tree of nodes (one block of tokens
// each) under salts, and entries, each the blocks of one node in one KV group.
struct PrefixSnapshot {
  struct Node {
    uint32_t parent = kNone;  // an index below the node's own; kNone: the first block of a prefix,
    uint32_t salt = 0;        // which then says under which salt
  };
  struct Entry {
    uint32_t node = 0;
    uint32_t group = 0;
  };
  static constexpr uint32_t kNone = UINT32_MAX;

  std::vector<Sha256Digest> salts;
  std::vector<Node> nodes;
  std::vector<TokenId> tokens;  // [nodes][block size]
  std::vector<Entry> entries;   // the most recently used first
  // The blocks of all entries, one entry after the other, as many as its group has units.
  std::vector<BlockId> blocks;
  std::vector<uint64_t> serials;  // of the blocks (PrefixCache::Place)
};

// Bytes that a file of these parts takes, its key not counted (kv_file.h).
uint64_t snapshot_bytes(const KvLayout& layout, uint64_t salts, uint64_t nodes, uint64_t entries,
                        uint64_t blocks);

// The prefixes of the cache, most recently used first, as far as max_bytes reach. A block is taken only with
// all blocks of its prefix that groups without a window hold. Changes nothing; O(blocks).
PrefixSnapshot take_snapshot(const KvLayout& layout, const BlockPool& pool, const PrefixCache& cache,
                             uint64_t max_bytes);

// Leaves of `snapshot` only the entries that `keep` (one per entry) names; nodes and salts stay.
void keep_entries(const KvLayout& layout, const std::vector<bool>& keep, PrefixSnapshot* snapshot);

// Which entries can serve a hit when those of which `sound` is false are gone: an unsound one takes its
// node's others and all descendants' with it, and so does a node that lacks the blocks of a group without a
// window.
std::vector<bool> usable_entries(const KvLayout& layout, const PrefixSnapshot& snapshot,
                                 const std::vector<bool>& sound);

// Whether a snapshot that was read is one: indices in range, parents first, tokens not below 0 and below
// `vocab`, no entry twice. kCorrupt names the number that is wrong.
Status check_snapshot(const KvLayout& layout, const PrefixSnapshot& snapshot, uint32_t vocab);

// Enters blocks into the cache, which must be empty of them: those of entry e are blocks[first_block(e)...],
// owned once by the caller, their contents stored. They become cached, in the snapshot's order of use; those
// of entries that are not `usable`, or that find no room for their node, become free. Returns the number of
// entries entered.
uint32_t enter_snapshot(const KvLayout& layout, const PrefixSnapshot& snapshot,
                        const std::vector<bool>& usable, BlockPool& pool, PrefixCache& cache);

}  // namespace kvasir
