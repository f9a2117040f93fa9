#include "kvcache/prefix_cache.h"

#include <fmt/format.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/check.h"

namespace kvasir {
namespace {

constexpr uint32_t kMaxNodes = uint32_t{1} << 30;

// A node per block, for each holds one at least. Not so where every layer has a window: of a long prefix only
// the end is resident then, and the nodes before it hold nothing.
uint32_t nodes_for(const KvLayout& layout, uint32_t blocks, uint32_t spare) {
  uint64_t per_block = 4;
  for (const KvLayout::Group& group : layout.groups()) {
    if (group.window == 0) per_block = 1;
  }
  return static_cast<uint32_t>(std::min<uint64_t>(blocks * per_block + spare, kMaxNodes));
}

}  // namespace

PrefixCache::PrefixCache(const KvLayout& layout, BlockPool& pool, const Options& options)
    : layout_(layout),
      pool_(pool),
      options_(options),
      block_size_(layout.block_size()),
      units_(layout.units()) {
  uint32_t offset = 0;
  for (const KvLayout::Group& group : layout.groups()) {
    unit_offset_.push_back(offset);
    offset += group.units;
  }
  runs_.resize(layout.groups().size());
  places_.resize(pool.total());
  if (!options.enabled) return;
  const uint32_t capacity = nodes_for(layout, pool.total(), options.spare_nodes);
  nodes_.resize(capacity);
  node_tokens_.resize(size_t{capacity} * block_size_, kNoToken);
  node_blocks_.resize(size_t{capacity} * units_, kNoBlock);
  buckets_.assign(std::bit_ceil(capacity), kNoNode);
  for (uint32_t i = capacity; i-- > 0;) {
    nodes_[i].next = free_node_;
    free_node_ = i;
  }
}

Sha256Digest PrefixCache::salt_digest(std::string_view salt) {
  return domain_digest("kvasir salt of a prefix", salt);
}

PrefixCache::SaltId PrefixCache::open_salt(const Sha256Digest& digest) {
  const auto [it, added] = salt_ids_.try_emplace(digest, 0);
  if (added) {
    if (free_salts_.empty()) {
      free_salts_.push_back(static_cast<SaltId>(salts_.size()));
      salts_.emplace_back();
    }
    it->second = free_salts_.back();
    free_salts_.pop_back();
    salts_[it->second].digest = digest;
  }
  ++salts_[it->second].users;
  return it->second;
}

void PrefixCache::close_salt(SaltId salt) {
  Salt& s = salts_[salt];
  CHECK(s.users > 0);
  if (--s.users > 0) return;
  salt_ids_.erase(s.digest);
  free_salts_.push_back(salt);
}

uint32_t PrefixCache::hash_of(uint32_t parent, const TokenId* tokens) const {
  const uint64_t seed = options_.hash_seed ^ (parent * 0x9E3779B97F4A7C15ull);
  const uint64_t hash = XXH3_64bits_withSeed(tokens, block_size_ * sizeof(TokenId), seed);
  const uint64_t mask = options_.hash_bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << options_.hash_bits) - 1;
  return static_cast<uint32_t>(hash & mask);
}

PrefixCache::NodeId PrefixCache::find(uint32_t parent, const TokenId* tokens, uint32_t hash) const {
  for (NodeId n = buckets_[hash & (buckets_.size() - 1)]; n != kNoNode; n = nodes_[n].next) {
    const Node& node = nodes_[n];
    if (node.hash == hash && node.parent == parent &&
        std::memcmp(tokens_of(n), tokens, block_size_ * sizeof(TokenId)) == 0)
      return n;
  }
  return kNoNode;
}

const BlockId* PrefixCache::resident(NodeId node, uint32_t group) const {
  const BlockId* ids = slots(node, group);
  return ids[0] == kNoBlock ? nullptr : ids;
}

PrefixCache::Hit PrefixCache::lookup(SaltId salt, std::span<const TokenId> tokens,
                                     uint32_t max_tokens) const {
  Hit best;
  if (!options_.enabled) return best;
  const std::vector<KvLayout::Group>& groups = layout_.groups();
  std::fill(runs_.begin(), runs_.end(), 0);
  uint32_t parent = kRoot | salt;
  const uint32_t blocks = static_cast<uint32_t>(tokens.size() / block_size_);
  for (uint32_t depth = 1; depth <= blocks && (depth - 1) * block_size_ < max_tokens; ++depth) {
    const TokenId* block = tokens.data() + size_t{depth - 1} * block_size_;
    const NodeId node = find(parent, block, hash_of(parent, block));
    if (node == kNoNode) break;
    const uint32_t boundary = std::min(depth * block_size_, max_tokens);
    bool usable = true;
    bool broken = false;
    for (size_t g = 0; g < groups.size(); ++g) {
      runs_[g] = resident(node, static_cast<uint32_t>(g)) != nullptr ? runs_[g] + 1 : 0;
      const uint32_t first = first_visible(groups[g].window, boundary) / block_size_;
      usable = usable && runs_[g] >= depth - first;
      broken = broken || (groups[g].window == 0 && runs_[g] < depth);
    }
    if (broken) break;
    if (usable) best = {boundary, depth, node, 0, 0};
    parent = node;
  }
  count_blocks(best);
  return best;
}

void PrefixCache::count_blocks(Hit& hit) const {
  const std::vector<KvLayout::Group>& groups = layout_.groups();
  NodeId node = hit.node;
  for (uint32_t entry = hit.entries; entry-- > 0; node = parent(node)) {
    for (size_t g = 0; g < groups.size(); ++g) {
      if (entry < first_visible(groups[g].window, hit.tokens) / block_size_) continue;
      hit.blocks += groups[g].units;
      if (pool_.refs(slots(node, static_cast<uint32_t>(g))[0]) == 0) hit.idle_blocks += groups[g].units;
    }
  }
}

PrefixCache::NodeId PrefixCache::take_node() {
  while (free_node_ == kNoNode && pool_.cached() > 0) evict_oldest();
  const NodeId node = free_node_;
  if (node == kNoNode) return kNoNode;
  free_node_ = nodes_[node].next;
  ++node_count_;
  return node;
}

PrefixCache::NodeId PrefixCache::extend(SaltId salt, NodeId parent_node,
                                        std::span<const TokenId> block_tokens) {
  DCHECK(block_tokens.size() == block_size_);
  const uint32_t parent = parent_node == kNoNode ? kRoot | salt : parent_node;
  const uint32_t hash = hash_of(parent, block_tokens.data());
  if (const NodeId found = find(parent, block_tokens.data(), hash); found != kNoNode) return found;
  const NodeId node = take_node();
  if (node == kNoNode) return kNoNode;
  uint32_t& bucket = buckets_[hash & (buckets_.size() - 1)];
  nodes_[node] = {parent, hash, bucket, 0, 0, 0, true};
  bucket = node;
  std::copy(block_tokens.begin(), block_tokens.end(), &node_tokens_[size_t{node} * block_size_]);
  if (parent_node == kNoNode)
    ++salts_[salt].users;
  else
    ++nodes_[parent_node].children;
  return node;
}

void PrefixCache::attach(NodeId node, uint32_t group, const BlockId* ids) {
  DCHECK(resident(node, group) == nullptr);
  BlockId* to = slots(node, group);
  for (uint32_t u = 0; u < layout_.groups()[group].units; ++u) {
    to[u] = ids[u];
    DCHECK(places_[index_of(ids[u])].node == kNoNode);
    places_[index_of(ids[u])] = {node, group, ++last_serial_};
    pool_.retain(ids[u]);
  }
  ++nodes_[node].resident;
}

void PrefixCache::unpin(NodeId node) {
  CHECK(nodes_[node].pins > 0);
  --nodes_[node].pins;
  remove_if_unused(node);
}

void PrefixCache::detach(NodeId node, uint32_t group) {
  BlockId* ids = slots(node, group);
  for (uint32_t u = 0; u < layout_.groups()[group].units; ++u) {
    places_[index_of(ids[u])] = {};
    pool_.forget(ids[u]);
    ids[u] = kNoBlock;
  }
  --nodes_[node].resident;
  remove_if_unused(node);
}

void PrefixCache::forget(BlockId id) {
  const Place tag = places_[index_of(id)];
  CHECK(tag.node != kNoNode);
  detach(tag.node, tag.group);
}

void PrefixCache::evict_oldest() {
  const BlockId oldest = pool_.oldest_cached();
  CHECK(oldest != kNoBlock);
  forget(oldest);
}

bool PrefixCache::make_room(uint32_t blocks) {
  if (pool_.available() < blocks) return false;
  while (pool_.free() < blocks) evict_oldest();
  return true;
}

void PrefixCache::unlink(NodeId node) {
  uint32_t* link = &buckets_[nodes_[node].hash & (buckets_.size() - 1)];
  while (*link != node) link = &nodes_[*link].next;
  *link = nodes_[node].next;
}

// Removes a node without children, pins and blocks, and then its parents as far as they have become so.
void PrefixCache::remove_if_unused(NodeId node) {
  while (nodes_[node].children == 0 && nodes_[node].pins == 0 && nodes_[node].resident == 0) {
    unlink(node);
    const uint32_t up = nodes_[node].parent;
    nodes_[node] = {};
    nodes_[node].next = free_node_;
    free_node_ = node;
    --node_count_;
    if (is_root(up)) {
      close_salt(up & ~kRoot);
      return;
    }
    node = up;
    --nodes_[node].children;
  }
}

Status PrefixCache::check_integrity() const {
  std::vector<uint32_t> children(nodes_.size(), 0);
  uint32_t used = 0;
  uint32_t tagged = 0;
  for (NodeId n = 0; n < nodes_.size(); ++n) {
    const Node& node = nodes_[n];
    if (!node.used) continue;
    ++used;
    if (!is_root(node.parent)) ++children[node.parent];
    if (find(node.parent, tokens_of(n), node.hash) != n)
      return internal_error(fmt::format("prefix node {} is not found by its own key", n));
    uint32_t resident_groups = 0;
    for (uint32_t g = 0; g < layout_.groups().size(); ++g) {
      const uint32_t units = layout_.groups()[g].units;
      const BlockId* ids = slots(n, g);
      resident_groups += ids[0] != kNoBlock;
      for (uint32_t u = 0; u < units; ++u) {
        if ((ids[u] == kNoBlock) != (ids[0] == kNoBlock))
          return internal_error(fmt::format("prefix node {} holds a part of group {}", n, g));
        if (ids[u] == kNoBlock) continue;
        ++tagged;
        const Place& tag = places_[index_of(ids[u])];
        if (tag.node != n || tag.group != g || !pool_.retained(ids[u]) ||
            pool_.refs(ids[u]) != pool_.refs(ids[0]))
          return internal_error(fmt::format("block {} and prefix node {} disagree", index_of(ids[u]), n));
      }
    }
    if (resident_groups != node.resident)
      return internal_error(
          fmt::format("prefix node {} counts {} groups, holds {}", n, node.resident, resident_groups));
  }
  uint32_t retained = 0;
  for (uint32_t b = 0; b < pool_.total(); ++b) retained += pool_.retained(BlockId{b});
  for (NodeId n = 0; n < nodes_.size(); ++n) {
    if (nodes_[n].used && children[n] != nodes_[n].children)
      return internal_error(
          fmt::format("prefix node {} counts {} children, has {}", n, nodes_[n].children, children[n]));
  }
  if (used != node_count_ || tagged != retained)
    return internal_error(
        fmt::format("prefix cache counts {} nodes ({} found) and {} blocks, the pool retains {}", node_count_,
                    used, tagged, retained));
  return {};
}

}  // namespace kvasir
