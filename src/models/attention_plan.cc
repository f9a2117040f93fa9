#include "models/attention_plan.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/table.h"
#include "kvcache/kv_layout.h"

namespace kvasir {
namespace {

// Reading a position costs as much as computing so many rows with it.
constexpr uint64_t kReadCost = 3;
// Pieces worth making per thread: the last to end is then alone for a small part of the whole.
constexpr uint32_t kPiecesPerThread = 8;
// Items that a shared prefix must leave for each thread.
constexpr uint32_t kItemsPerThread = 3;
// Rows of a shared call below which reading K and V once is not worth fewer items.
constexpr uint32_t kLeastSharedRows = 12;

constexpr uint32_t divide_up(uint64_t a, uint64_t b) {
  return static_cast<uint32_t>((a + b - 1) / b);
}

// Positions that units at [first, end) read of [from, to).
uint64_t overlap(uint32_t first, uint32_t end, uint32_t from, uint32_t to) {
  const uint32_t low = std::max(first, from);
  const uint32_t high = std::min(end, to);
  return low < high ? high - low : 0;
}

}  // namespace

AttentionPlan::AttentionPlan(const Shape& shape) : shape_(shape) {
  const size_t rows = shape.max_rows;
  units_.reserve(rows);
  candidates_.reserve(rows);
  clusters_.reserve(rows);
  // One per unit and KV head, and what cutting makes at most (cut() keeps within it).
  items_.reserve(rows * shape.kv_heads + size_t{4} * kPiecesPerThread * shape.threads * shape.kv_heads);
}

void AttentionPlan::plan(const ForwardBatch& batch, uint32_t kv_group, uint32_t ids_per_entry,
                         uint32_t block_size) {
  batch_ = &batch;
  kv_group_ = kv_group;
  ids_per_entry_ = ids_per_entry;
  block_size_ = block_size;
  partials_used_ = 0;
  units_.clear();
  items_.clear();
  candidates_.clear();
  clusters_.clear();
  for (uint32_t s = 0; s < batch.sequences.size(); ++s) {
    const ForwardBatch::Sequence& sequence = batch.sequences[s];
    if (sequence.rows == 0) continue;
    if (may_share(sequence))
      candidates_.push_back({s, sequence.tables[kv_group][0]});
    else
      add_alone(s);
  }
  find_clusters();
  uint64_t total = 0;
  for (const Cluster& cluster : clusters_) total += cost(cluster) * shape_.kv_heads;
  const uint64_t target =
      shape_.threads == 1 ? total : std::max<uint64_t>(1, total / (shape_.threads * kPiecesPerThread));
  for (const Cluster& cluster : clusters_) emit(cluster, target);
  rows_stand_alone_ =
      std::all_of(batch.sequences.begin(), batch.sequences.end(),
                  [](const auto& s) { return s.rows <= 1; }) &&
      std::all_of(units_.begin(), units_.end(), [](const Unit& unit) { return unit.pieces == 1; });
  batch_ = nullptr;
}

uint32_t AttentionPlan::partials_of(const Unit& unit, uint32_t kv_head, uint32_t row) const {
  const uint32_t rows = unit.tokens * shape_.group;
  return unit.partials + (kv_head * rows + row) * (unit.split_end - unit.first_split);
}

AttentionPlan::Unit AttentionPlan::make_unit(uint32_t sequence, uint32_t first_row, uint32_t tokens) const {
  Unit unit{.sequence = sequence, .first_row = first_row, .tokens = tokens};
  unit.first_position = static_cast<uint32_t>(batch_->positions[first_row]);
  unit.first_split = first_visible(shape_.window, unit.first_position) / kAttnSplit;
  unit.split_end = (unit.first_position + tokens - 1) / kAttnSplit + 1;
  return unit;
}

// Rows of a call that so many tokens of a sequence take.
uint32_t AttentionPlan::rows_of(uint32_t tokens) const {
  return divide_up(uint64_t{tokens} * shape_.group, shape_.lanes) * shape_.lanes;
}

// A sequence that shares nothing: units of as many tokens as a call takes.
void AttentionPlan::add_alone(uint32_t s) {
  const ForwardBatch::Sequence& sequence = batch_->sequences[s];
  const uint32_t most = std::max(1u, shape_.call_rows / shape_.group);
  for (uint32_t r = 0; r < sequence.rows; r += most) {
    units_.push_back(make_unit(s, sequence.first_row + r, std::min(most, sequence.rows - r)));
    close_cluster(static_cast<uint32_t>(units_.size()) - 1, 0);
  }
}

// Whether reading a prefix with others can pay: at least a chunk lies before its rows, all of it is seen, and
// its rows leave room in a call for another's.
bool AttentionPlan::may_share(const ForwardBatch::Sequence& sequence) const {
  if (batch_->sequences.size() < 2 || rows_of(sequence.rows) > shape_.call_rows / 2) return false;
  const auto first = static_cast<uint32_t>(batch_->positions[sequence.first_row]);
  const uint32_t last = first + sequence.rows - 1;
  return first >= kAttnChunk && first_visible(shape_.window, last) == 0;
}

void AttentionPlan::find_clusters() {
  std::sort(candidates_.begin(), candidates_.end(), [](const Candidate& a, const Candidate& b) {
    return a.first_block != b.first_block ? a.first_block < b.first_block : a.sequence < b.sequence;
  });
  for (size_t i = 0; i < candidates_.size();) {
    const Run run = find_run(i);
    if (run.end == i + 1)
      add_alone(candidates_[i].sequence);
    else
      deal_run(i, run);
    i = run.end;
  }
}

// The candidates from `begin` on that share a prefix with it, as long as one more does not halve what all
// share.
AttentionPlan::Run AttentionPlan::find_run(size_t begin) const {
  const Candidate& leader = candidates_[begin];
  Run run{.end = begin + 1, .shared = 0, .rows = rows_of(batch_->sequences[leader.sequence].rows)};
  for (; run.end < candidates_.size(); ++run.end) {
    const Candidate& next = candidates_[run.end];
    if (next.first_block != leader.first_block) break;
    uint32_t shared = shared_positions(leader.sequence, next.sequence);
    if (run.shared != 0) shared = std::min(shared, run.shared);
    if (shared == 0 || 2 * uint64_t{shared} < run.shared) break;
    run.shared = shared;
    run.rows += rows_of(batch_->sequences[next.sequence].rows);
  }
  return run;
}

// Positions, in whole chunks, that two sequences read from the same blocks and that all their rows see.
uint32_t AttentionPlan::shared_positions(uint32_t a, uint32_t b) const {
  const ForwardBatch::Sequence& x = batch_->sequences[a];
  const ForwardBatch::Sequence& y = batch_->sequences[b];
  const int32_t first = std::min(batch_->positions[x.first_row], batch_->positions[y.first_row]);
  const uint32_t ids = static_cast<uint32_t>(first) / block_size_ * ids_per_entry_;
  const BlockId* table = x.tables[kv_group_];
  const BlockId* other = y.tables[kv_group_];
  const auto equal = static_cast<uint32_t>(std::mismatch(table, table + ids, other).first - table);
  const uint64_t positions = uint64_t{equal / ids_per_entry_} * block_size_;
  return static_cast<uint32_t>(positions / kAttnChunk * kAttnChunk);
}

// Deals sequences that share a prefix into clusters of about equal size: as few as the rows of a call allow,
// but enough to keep the threads busy.
void AttentionPlan::deal_run(size_t begin, const Run& run) {
  const uint32_t rows = run.rows;
  uint32_t count = divide_up(rows, shape_.call_rows);
  if (shape_.threads > 1) {
    const uint32_t splits = divide_up(run.shared, kAttnSplit);
    const uint32_t wanted = divide_up(uint64_t{kItemsPerThread} * shape_.threads, shape_.kv_heads * splits);
    count = std::max(count, std::min(wanted, rows / kLeastSharedRows));
  }
  const uint32_t size = std::min(shape_.call_rows, divide_up(rows, count));
  auto first = static_cast<uint32_t>(units_.size());
  uint32_t held = 0;
  for (size_t i = begin; i < run.end; ++i) {
    const uint32_t s = candidates_[i].sequence;
    const ForwardBatch::Sequence& sequence = batch_->sequences[s];
    const uint32_t more = rows_of(sequence.rows);
    if (held != 0 && (held >= size || held + more > shape_.call_rows)) {
      close_cluster(first, run.shared);
      first = static_cast<uint32_t>(units_.size());
      held = 0;
    }
    units_.push_back(make_unit(s, sequence.first_row, sequence.rows));
    held += more;
  }
  close_cluster(first, run.shared);
}

// Makes a cluster of the units from `unit_begin` on.
void AttentionPlan::close_cluster(uint32_t unit_begin, uint32_t shared) {
  Cluster cluster{.unit_begin = unit_begin,
                  .unit_count = static_cast<uint32_t>(units_.size()) - unit_begin,
                  .shared = shared};
  if (cluster.unit_count == 1) cluster.shared = 0;
  for (size_t u = unit_begin; u < units_.size(); ++u) cluster.rows += rows_of(units_[u].tokens);
  clusters_.push_back(cluster);
}

// What a cluster takes under one KV head, in positions times (rows + kReadCost).
uint64_t AttentionPlan::cost(const Cluster& cluster) const {
  uint64_t sum = cluster.shared * (cluster.rows + kReadCost);
  for (uint32_t u = cluster.unit_begin; u < cluster.unit_begin + cluster.unit_count; ++u) {
    const Unit& unit = units_[u];
    const uint32_t first = first_visible(shape_.window, unit.first_position);
    const uint32_t end = unit.first_position + unit.tokens;
    sum += overlap(first, end, cluster.shared, end) * (rows_of(unit.tokens) + kReadCost);
  }
  return sum;
}

void AttentionPlan::emit(const Cluster& cluster, uint64_t target) {
  if (cost(cluster) > target && cut(cluster, target)) return;
  uint32_t split_begin = UINT32_MAX;
  uint32_t split_end = 0;
  for (uint32_t u = cluster.unit_begin; u < cluster.unit_begin + cluster.unit_count; ++u) {
    split_begin = std::min(split_begin, units_[u].first_split);
    split_end = std::max(split_end, units_[u].split_end);
  }
  emit_pieces(cluster, split_begin, split_end, 1, false);
}

// Cuts a cluster into ranges of splits that cost about `target`: up to the end of what it shares for all of
// its units at once, from there on unit by unit. False, with nothing done, when that makes one piece, or more
// than there is room for.
bool AttentionPlan::cut(const Cluster& cluster, uint64_t target) {
  const auto per_piece = [&](uint64_t rows) {
    return std::max<uint64_t>(1, target / (kAttnSplit * (rows + kReadCost)));
  };
  const uint32_t shared_splits = divide_up(cluster.shared, kAttnSplit);
  const uint32_t shared_pieces = divide_up(shared_splits, per_piece(cluster.rows));
  const auto own_begin = [&](const Unit& unit) { return std::max(unit.first_split, shared_splits); };
  const auto own_pieces = [&](const Unit& unit) {
    const uint32_t splits = unit.split_end - std::min(own_begin(unit), unit.split_end);
    return divide_up(splits, per_piece(rows_of(unit.tokens)));
  };
  const std::span<Unit> units = std::span(units_).subspan(cluster.unit_begin, cluster.unit_count);
  uint64_t pieces = shared_pieces;
  uint64_t partials = 0;
  for (const Unit& unit : units) {
    pieces += own_pieces(unit);
    partials += uint64_t{unit.tokens} * shape_.group * shape_.kv_heads * (unit.split_end - unit.first_split);
  }
  // Clusters that are not cut yet must find their place in items_ too: one each per KV head.
  const uint64_t room = items_.capacity() - items_.size();
  const uint64_t others = clusters_.size() * shape_.kv_heads;
  if (pieces < 2 || partials > shape_.max_partials - partials_used_ ||
      pieces * shape_.kv_heads + others > room)
    return false;
  for (Unit& unit : units) {
    unit.partials = partials_used_;
    unit.pieces = shared_pieces + own_pieces(unit);
    partials_used_ += unit.tokens * shape_.group * shape_.kv_heads * (unit.split_end - unit.first_split);
  }
  emit_pieces(cluster, 0, shared_splits, shared_pieces, true);
  for (uint32_t u = cluster.unit_begin; u < cluster.unit_begin + cluster.unit_count; ++u) {
    const Unit& unit = units_[u];
    const Cluster own{.unit_begin = u, .unit_count = 1, .shared = 0};
    emit_pieces(own, own_begin(unit), unit.split_end, own_pieces(unit), true);
  }
  return true;
}

// Splits [split_begin, split_end) in `pieces` ranges whose sizes differ by at most one, for every KV head.
void AttentionPlan::emit_pieces(const Cluster& part, uint32_t split_begin, uint32_t split_end,
                                uint32_t pieces, bool partial) {
  const uint64_t splits = split_end - split_begin;
  for (uint32_t i = 0; i < pieces; ++i) {
    const auto begin = static_cast<uint32_t>(split_begin + splits * i / pieces);
    const auto end = static_cast<uint32_t>(split_begin + splits * (i + 1) / pieces);
    for (uint32_t h = 0; h < shape_.kv_heads; ++h) {
      DCHECK(items_.size() < items_.capacity());
      items_.push_back({part.unit_begin, part.unit_count, h, part.shared, begin, end, partial});
    }
  }
}

}  // namespace kvasir
