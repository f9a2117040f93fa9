#include "kv_contents.h"

#include <fmt/format.h>

#include <algorithm>

namespace kvasir::sim {

uint64_t next_value(uint64_t before, TokenId token) {
  uint64_t x = before ^ ((static_cast<uint64_t>(token) + 1) * 0x9E3779B97F4A7C15ull);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}

uint64_t first_value(uint32_t salt, TokenId token) {
  return next_value(0x5851F42D4C957F2Dull * (salt + 1), token);
}

KvContents::KvContents(const KvLayout& layout, const BlockPool& pool)
    : layout_(layout), pool_(pool), slots_(size_t{pool.total()} * layout.block_size()) {}

void KvContents::copy(const BlockCopy& copy) {
  const uint32_t size = layout_.block_size();
  std::copy_n(&slots_[size_t{index_of(copy.from)} * size], size, &slots_[size_t{index_of(copy.to)} * size]);
}

const KvContents::Slot& KvContents::slot(const BlockTable& table, uint32_t group, uint32_t unit,
                                         uint32_t position) const {
  static const Slot kNothing;
  const uint32_t size = layout_.block_size();
  const BlockId id = table.tables()[group][size_t{position / size} * layout_.groups()[group].units + unit];
  return id == kNoBlock ? kNothing : slots_[size_t{index_of(id)} * size + position % size];
}

Status KvContents::write(const BlockTable& table, uint32_t position, TokenId token, uint64_t value) {
  const uint32_t size = layout_.block_size();
  if (position / size >= table.entries())
    return internal_error(
        fmt::format("position {} is written, the table has {} entries", position, table.entries()));
  for (uint32_t g = 0; g < layout_.groups().size(); ++g) {
    const uint32_t units = layout_.groups()[g].units;
    for (uint32_t u = 0; u < units; ++u) {
      const BlockId id = table.tables()[g][size_t{position / size} * units + u];
      if (id == kNoBlock) return internal_error(fmt::format("position {} is written to no block", position));
      if (pool_.refs(id) != 1 || pool_.retained(id))
        return internal_error(fmt::format("position {} is written to block {}, which has {} owners{}",
                                          position, index_of(id), pool_.refs(id),
                                          pool_.retained(id) ? " and is cached" : ""));
      slots_[size_t{index_of(id)} * size + position % size] = {value, position, place_of(g, u), token};
    }
  }
  return {};
}

Status KvContents::read(const BlockTable& table, uint32_t first, uint32_t rows,
                        std::span<const uint64_t> values) const {
  for (uint32_t g = 0; g < layout_.groups().size(); ++g) {
    for (uint32_t p = first_visible(layout_.groups()[g].window, first); p < first + rows; ++p) {
      for (uint32_t u = 0; u < layout_.groups()[g].units; ++u) {
        const Slot& seen = slot(table, g, u, p);
        if (seen.value != values[p] || seen.position != p || seen.place != place_of(g, u))
          return internal_error(fmt::format(
              "rows {} to {} read position {} of group {}, unit {}: it holds {}", first, first + rows, p, g,
              u,
              seen.position == UINT32_MAX
                  ? "nothing"
                  : fmt::format("token {} of position {}, group and unit {:x}, of {} prefix", seen.token,
                                seen.position, seen.place, seen.value == values[p] ? "this" : "another")));
      }
    }
  }
  return {};
}

uint64_t KvContents::value_at(const BlockTable& table, uint32_t position) const {
  const uint32_t group = static_cast<uint32_t>(layout_.groups().size()) - 1;
  return slot(table, group, layout_.groups()[group].units - 1, position).value;
}

Status KvContents::check_retained() const {
  const uint32_t size = layout_.block_size();
  for (uint32_t b = 0; b < pool_.total(); ++b) {
    if (!pool_.retained(BlockId{b})) continue;
    const Slot* block = &slots_[size_t{b} * size];
    for (uint32_t i = 0; i < size; ++i) {
      if (block[i].position % size != i || block[i].place != block[0].place ||
          (i > 0 && (block[i].position != block[i - 1].position + 1 ||
                     block[i].value != next_value(block[i - 1].value, block[i].token))))
        return internal_error(
            fmt::format("cached block {} does not hold one prefix: slot {} has token {} of "
                        "position {}",
                        b, i, block[i].token, block[i].position));
    }
  }
  return {};
}

KvContents::Index::Index(const KvContents& contents) : layout_(contents.layout_) {
  const uint32_t size = layout_.block_size();
  for (uint32_t b = 0; b < contents.pool_.total(); ++b) {
    if (!contents.pool_.retained(BlockId{b})) continue;
    const Slot& last = contents.slots_[size_t{b} * size + size - 1];
    last_slots_.push_back({last.value, last.place});
  }
  std::sort(last_slots_.begin(), last_slots_.end());
}

bool KvContents::Index::has_all_units(uint32_t group, uint64_t value) const {
  for (uint32_t u = 0; u < layout_.groups()[group].units; ++u) {
    if (!std::binary_search(last_slots_.begin(), last_slots_.end(), Entry{value, place_of(group, u)}))
      return false;
  }
  return true;
}

uint32_t KvContents::Index::longest(std::span<const uint64_t> values, uint32_t max_tokens) const {
  const uint32_t size = layout_.block_size();
  const uint32_t groups = static_cast<uint32_t>(layout_.groups().size());
  std::vector<uint32_t> run(groups, 0);
  uint32_t best = 0;
  for (uint32_t depth = 1; depth * size <= values.size() && (depth - 1) * size < max_tokens; ++depth) {
    const uint32_t boundary = std::min(depth * size, max_tokens);
    bool usable = true;
    for (uint32_t g = 0; g < groups; ++g) {
      run[g] = has_all_units(g, values[depth * size - 1]) ? run[g] + 1 : 0;
      const uint32_t first = first_visible(layout_.groups()[g].window, boundary) / size;
      usable = usable && run[g] >= depth - first;
    }
    if (usable) best = boundary;
  }
  return best;
}

}  // namespace kvasir::sim
