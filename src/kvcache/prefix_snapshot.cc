#include "kvcache/prefix_snapshot.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "kvcache/kv_file_format.h"

namespace kvasir {
namespace {

using NodeId = PrefixCache::NodeId;

// Chooses nodes and entries one after the other until the bytes are used up.
class Collector {
 public:
  Collector(const KvLayout& layout, const PrefixCache& cache, uint64_t max_bytes)
      : layout_(layout), cache_(cache), max_bytes_(max_bytes) {
    index_.assign(cache.node_capacity(), PrefixSnapshot::kNone);
    taken_.resize(layout.groups().size());
  }

  // The block's entry, after the nodes before it and their blocks. False when the bytes are used up.
  bool add(BlockId block) {
    const PrefixCache::Place& place = cache_.place(block);
    return place.node == PrefixCache::kNoNode ||
           (add_chain(place.node) && add_entry(place.node, place.group));
  }

  PrefixSnapshot take() { return std::move(out_); }

 private:
  bool add_chain(NodeId node) {
    std::vector<NodeId>& chain = chain_;
    chain.clear();
    for (NodeId n = node; n != PrefixCache::kNoNode && index_[n] == PrefixSnapshot::kNone;
         n = cache_.parent(n))
      chain.push_back(n);
    for (; !chain.empty(); chain.pop_back()) {
      if (!add_node(chain.back())) return false;
      for (uint32_t g = 0; g < layout_.groups().size(); ++g) {
        if (layout_.groups()[g].window == 0 && cache_.resident(chain.back(), g) != nullptr &&
            !add_entry(chain.back(), g))
          return false;
      }
    }
    return true;
  }

  bool fits(uint64_t salts, uint64_t nodes, uint64_t entries, uint64_t blocks) const {
    return snapshot_bytes(layout_, out_.salts.size() + salts, out_.nodes.size() + nodes,
                          out_.entries.size() + entries, out_.blocks.size() + blocks) <= max_bytes_;
  }

  bool add_node(NodeId node) {
    const NodeId parent = cache_.parent(node);
    PrefixSnapshot::Node added;
    if (parent != PrefixCache::kNoNode) {
      added.parent = index_[parent];
    } else {
      const auto [it, is_new] =
          salts_.try_emplace(cache_.salt_of(node), static_cast<uint32_t>(out_.salts.size()));
      if (is_new && !fits(1, 1, 0, 0)) return false;
      if (is_new) out_.salts.push_back(it->first);
      added.salt = it->second;
    }
    if (!fits(0, 1, 0, 0)) return false;
    index_[node] = static_cast<uint32_t>(out_.nodes.size());
    out_.nodes.push_back(added);
    const std::span<const TokenId> tokens = cache_.tokens(node);
    out_.tokens.insert(out_.tokens.end(), tokens.begin(), tokens.end());
    for (std::vector<bool>& taken : taken_) taken.push_back(false);
    return true;
  }

  bool add_entry(NodeId node, uint32_t group) {
    const uint32_t index = index_[node];
    if (taken_[group][index]) return true;
    const uint32_t units = layout_.groups()[group].units;
    if (!fits(0, 0, 1, units)) return false;
    taken_[group][index] = true;
    out_.entries.push_back({index, group});
    const BlockId* ids = cache_.resident(node, group);
    for (uint32_t u = 0; u < units; ++u) {
      out_.blocks.push_back(ids[u]);
      out_.serials.push_back(cache_.place(ids[u]).serial);
    }
    return true;
  }

  const KvLayout& layout_;
  const PrefixCache& cache_;
  uint64_t max_bytes_;
  PrefixSnapshot out_;
  std::vector<uint32_t> index_;           // of the cache's nodes in out_
  std::vector<std::vector<bool>> taken_;  // [group][node of out_]
  std::map<Sha256Digest, uint32_t> salts_;
  std::vector<NodeId> chain_;
};

}  // namespace

uint64_t snapshot_bytes(const KvLayout& layout, uint64_t salts, uint64_t nodes, uint64_t entries,
                        uint64_t blocks) {
  const uint64_t directory = directory_bytes(salts, nodes, entries, blocks, layout.block_size());
  return kKvPayloadOffset + blocks * layout.block_bytes() + directory;
}

PrefixSnapshot take_snapshot(const KvLayout& layout, const BlockPool& pool, const PrefixCache& cache,
                             uint64_t max_bytes) {
  Collector collector(layout, cache, max_bytes);
  bool room = cache.enabled();
  for (uint32_t b = 0; b < pool.total() && room; ++b) {
    if (pool.refs(BlockId{b}) > 0) room = collector.add(BlockId{b});
  }
  for (BlockId b = pool.newest_cached(); b != kNoBlock && room; b = pool.older_cached(b))
    room = collector.add(b);
  return collector.take();
}

void keep_entries(const KvLayout& layout, const std::vector<bool>& keep, PrefixSnapshot* snapshot) {
  size_t entry = 0, block = 0, from = 0;
  for (size_t e = 0; e < snapshot->entries.size(); ++e) {
    const PrefixSnapshot::Entry this_one = snapshot->entries[e];
    const uint32_t units = layout.groups()[this_one.group].units;
    if (keep[e]) {
      snapshot->entries[entry++] = this_one;
      for (uint32_t u = 0; u < units; ++u, ++block) {
        snapshot->blocks[block] = snapshot->blocks[from + u];
        if (!snapshot->serials.empty()) snapshot->serials[block] = snapshot->serials[from + u];
      }
    }
    from += units;
  }
  snapshot->entries.resize(entry);
  snapshot->blocks.resize(block);
  if (!snapshot->serials.empty()) snapshot->serials.resize(block);
}

std::vector<bool> usable_entries(const KvLayout& layout, const PrefixSnapshot& snapshot,
                                 const std::vector<bool>& sound) {
  uint32_t full_groups = 0;
  for (const KvLayout::Group& group : layout.groups()) full_groups += group.window == 0;
  std::vector<uint32_t> full(snapshot.nodes.size(), 0);
  std::vector<bool> good(snapshot.nodes.size(), true);
  for (size_t e = 0; e < snapshot.entries.size(); ++e) {
    const PrefixSnapshot::Entry& entry = snapshot.entries[e];
    if (!sound[e]) good[entry.node] = false;
    full[entry.node] += layout.groups()[entry.group].window == 0;
  }
  for (size_t n = 0; n < snapshot.nodes.size(); ++n) {
    const uint32_t parent = snapshot.nodes[n].parent;
    good[n] = good[n] && full[n] == full_groups && (parent == PrefixSnapshot::kNone || good[parent]);
  }
  std::vector<bool> usable(snapshot.entries.size());
  for (size_t e = 0; e < usable.size(); ++e) usable[e] = sound[e] && good[snapshot.entries[e].node];
  return usable;
}

Status check_snapshot(const KvLayout& layout, const PrefixSnapshot& snapshot, uint32_t vocab) {
  for (size_t n = 0; n < snapshot.nodes.size(); ++n) {
    const PrefixSnapshot::Node& node = snapshot.nodes[n];
    const bool root = node.parent == PrefixSnapshot::kNone;
    if (root ? node.salt >= snapshot.salts.size() : node.parent >= n)
      return corrupt(
          fmt::format("node {} has the {} {}", n, root ? "salt" : "parent", root ? node.salt : node.parent));
  }
  for (size_t t = 0; t < snapshot.tokens.size(); ++t) {
    const TokenId token = snapshot.tokens[t];
    if (token < 0 || static_cast<uint32_t>(token) >= vocab)
      return corrupt(fmt::format("token {} is {}; the vocabulary has {}", t, token, vocab));
  }
  const size_t groups = layout.groups().size();
  std::vector<bool> seen(snapshot.nodes.size() * groups, false);
  size_t blocks = 0;
  for (const PrefixSnapshot::Entry& entry : snapshot.entries) {
    if (entry.node >= snapshot.nodes.size() || entry.group >= groups)
      return corrupt(fmt::format("an entry is of node {} of {} and group {} of {}", entry.node,
                                 snapshot.nodes.size(), entry.group, groups));
    if (seen[entry.node * groups + entry.group])
      return corrupt(fmt::format("node {} has two entries of group {}", entry.node, entry.group));
    seen[entry.node * groups + entry.group] = true;
    blocks += layout.groups()[entry.group].units;
  }
  if (blocks != snapshot.blocks.size())
    return corrupt(
        fmt::format("the entries need {} blocks, and there are {}", blocks, snapshot.blocks.size()));
  return {};
}

uint32_t enter_snapshot(const KvLayout& layout, const PrefixSnapshot& snapshot,
                        const std::vector<bool>& usable, BlockPool& pool, PrefixCache& cache) {
  const uint32_t size = layout.block_size();
  std::vector<PrefixCache::SaltId> salts;
  for (const Sha256Digest& digest : snapshot.salts) salts.push_back(cache.open_salt(digest));
  std::vector<bool> wanted(snapshot.nodes.size(), false);
  for (size_t e = 0; e < usable.size(); ++e) {
    if (usable[e]) wanted[snapshot.entries[e].node] = true;
  }
  for (size_t n = wanted.size(); n-- > 0;) {
    if (wanted[n] && snapshot.nodes[n].parent != PrefixSnapshot::kNone)
      wanted[snapshot.nodes[n].parent] = true;
  }
  std::vector<NodeId> nodes(snapshot.nodes.size(), PrefixCache::kNoNode);
  for (size_t n = 0; n < nodes.size(); ++n) {
    const PrefixSnapshot::Node& node = snapshot.nodes[n];
    const bool root = node.parent == PrefixSnapshot::kNone;
    if (!wanted[n] || (!root && nodes[node.parent] == PrefixCache::kNoNode)) continue;
    nodes[n] = cache.extend(root ? salts[node.salt] : 0, root ? PrefixCache::kNoNode : nodes[node.parent],
                            std::span(snapshot.tokens).subspan(n * size, size));
    if (nodes[n] != PrefixCache::kNoNode) cache.pin(nodes[n]);
  }
  uint32_t entered = 0;
  size_t end = snapshot.blocks.size();
  for (size_t e = snapshot.entries.size(); e-- > 0;) {  // the last used is let go of last
    const PrefixSnapshot::Entry& entry = snapshot.entries[e];
    const uint32_t units = layout.groups()[entry.group].units;
    end -= units;
    const NodeId node = nodes[entry.node];
    if (usable[e] && node != PrefixCache::kNoNode && cache.resident(node, entry.group) == nullptr) {
      cache.attach(node, entry.group, &snapshot.blocks[end]);
      ++entered;
    }
    for (uint32_t u = 0; u < units; ++u) pool.release(snapshot.blocks[end + u]);
  }
  for (const NodeId node : nodes) {
    if (node != PrefixCache::kNoNode) cache.unpin(node);
  }
  for (const PrefixCache::SaltId salt : salts) cache.close_salt(salt);
  return entered;
}

}  // namespace kvasir
