#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/result.h"
#include "base/sha256.h"
#include "kvcache/block_pool.h"
#include "kvcache/kv_layout.h"

namespace kvasir {

// Which full blocks of which prefixes are in the pool. A tree whose nodes are blocks of tokens: a node is
// found by the hash of its parent's identity and its own token ids, then compared in both, so that no hash is
// ever trusted: two prefixes share a node exactly when they are equal from the first token on and have the
// same salt. A node holds, per KV group, the ids of the blocks that keep its tokens' K and V (resident), or
// none (evicted, or left a window).
//
// Only full blocks of committed tokens enter. Blocks that nobody owns stay cached in the pool and are given
// up in order of their last release; tables release their last entries first, so that a prefix outlives what
// follows it. All memory is allocated at construction, except for salts. Not thread-safe.
class PrefixCache {
 public:
  struct Options {
    bool enabled = true;
    uint64_t hash_seed = 0;
    uint32_t hash_bits = 64;      // fewer force collisions, in tests
    uint32_t spare_nodes = 4096;  // beside one per block; fewer force their want, in tests
  };
  PrefixCache(const KvLayout& layout, BlockPool& pool, const Options& options);

  bool enabled() const { return options_.enabled; }

  // --- salts: prefixes under different salts never meet. Only their digests are kept. ---
  using SaltId = uint32_t;
  static Sha256Digest salt_digest(std::string_view salt);
  SaltId open_salt(std::string_view salt) { return open_salt(salt_digest(salt)); }
  SaltId open_salt(const Sha256Digest& digest);
  void share_salt(SaltId salt) { ++salts_[salt].users; }
  void close_salt(SaltId salt);

  using NodeId = uint32_t;
  static constexpr NodeId kNoNode = UINT32_MAX;

  // The longest usable prefix of a sequence, of at most max_tokens tokens; the last block may be used in
  // part. Usable: groups without a window have every block of it, groups with one have the blocks that the
  // next row sees.
  struct Hit {
    uint32_t tokens = 0;
    uint32_t entries = 0;      // table entries it spans
    NodeId node = kNoNode;     // of the last entry
    uint32_t blocks = 0;       // blocks that adopting it refers to,
    uint32_t idle_blocks = 0;  // and how many of them are cached now (adopting takes them out of available())
  };
  Hit lookup(SaltId salt, std::span<const TokenId> tokens, uint32_t max_tokens) const;

  // --- used by BlockTable ---
  NodeId parent(NodeId node) const { return is_root(nodes_[node].parent) ? kNoNode : nodes_[node].parent; }
  // The group's block ids (its units of them), or nullptr when not resident.
  const BlockId* resident(NodeId node, uint32_t group) const;

  // The child of `parent` (kNoNode: the first block) with these tokens, made if need be; kNoNode when there
  // is no room for another node. The caller pins it before anything else is asked of the cache.
  NodeId extend(SaltId salt, NodeId parent, std::span<const TokenId> block_tokens);
  // Makes blocks of the caller's resident in a node that has none for this group.
  void attach(NodeId node, uint32_t group, const BlockId* ids);
  // A pinned node stays, whatever happens to its blocks.
  void pin(NodeId node) { ++nodes_[node].pins; }
  void unpin(NodeId node);

  // The block is about to be written: its node lets go of it (and of its fellows of the same entry).
  void forget(BlockId id);

  // Gives up cached blocks until the pool has that many free ones. False when it cannot, and then changes
  // nothing.
  bool make_room(uint32_t blocks);

  // --- used by snapshots (prefix_snapshot.h) ---
  // In which node and group a block's contents stand. A serial is given once: as long as a block has the
  // same, its contents are the same.
  struct Place {
    NodeId node = kNoNode;  // kNoNode: in none
    uint32_t group = 0;
    uint64_t serial = 0;
  };
  const Place& place(BlockId id) const { return places_[index_of(id)]; }
  uint64_t serials_given() const { return last_serial_; }
  uint32_t node_capacity() const { return static_cast<uint32_t>(nodes_.size()); }
  std::span<const TokenId> tokens(NodeId node) const { return {tokens_of(node), block_size_}; }
  // Of a node without a parent.
  const Sha256Digest& salt_of(NodeId node) const { return salts_[nodes_[node].parent & ~kRoot].digest; }

  uint32_t node_count() const { return node_count_; }
  size_t salt_count() const { return salt_ids_.size(); }

  // Nodes, blocks and counts agree with each other and with the pool. O(nodes + blocks).
  Status check_integrity() const;

 private:
  struct Node {
    uint32_t parent = kNoNode;  // a node, or kRoot | salt
    uint32_t hash = 0;
    uint32_t next = kNoNode;  // in its bucket or in the free list
    uint32_t children = 0;
    uint32_t pins = 0;
    uint32_t resident = 0;  // groups that hold blocks
    bool used = false;
  };
  struct Salt {
    Sha256Digest digest{};
    uint32_t users = 0;  // tables and first-level nodes
  };
  struct DigestHash {
    size_t operator()(const Sha256Digest& digest) const {
      size_t hash = 0;
      std::memcpy(&hash, digest.data(), sizeof(hash));
      return hash;
    }
  };
  static constexpr uint32_t kRoot = 0x80000000u;
  static bool is_root(uint32_t parent) { return (parent & kRoot) != 0; }

  uint32_t hash_of(uint32_t parent, const TokenId* tokens) const;
  NodeId find(uint32_t parent, const TokenId* tokens, uint32_t hash) const;
  NodeId take_node();
  void remove_if_unused(NodeId node);
  void unlink(NodeId node);
  void evict_oldest();
  void detach(NodeId node, uint32_t group);
  BlockId* slots(NodeId node, uint32_t group) {
    return &node_blocks_[size_t{node} * units_ + unit_offset_[group]];
  }
  const BlockId* slots(NodeId node, uint32_t group) const {
    return &node_blocks_[size_t{node} * units_ + unit_offset_[group]];
  }
  const TokenId* tokens_of(NodeId node) const { return &node_tokens_[size_t{node} * block_size_]; }
  void count_blocks(Hit& hit) const;

  const KvLayout& layout_;
  BlockPool& pool_;
  Options options_;
  uint32_t block_size_;
  uint32_t units_;                     // over all groups
  std::vector<uint32_t> unit_offset_;  // of each group
  std::vector<Node> nodes_;
  std::vector<TokenId> node_tokens_;
  std::vector<BlockId> node_blocks_;
  std::vector<uint32_t> buckets_;
  std::vector<Place> places_;  // per block
  uint64_t last_serial_ = 0;
  NodeId free_node_ = kNoNode;
  uint32_t node_count_ = 0;
  std::vector<Salt> salts_;
  std::vector<SaltId> free_salts_;
  std::unordered_map<Sha256Digest, SaltId, DigestHash> salt_ids_;
  mutable std::vector<uint32_t> runs_;  // of lookup: consecutive resident blocks per group
};

}  // namespace kvasir
