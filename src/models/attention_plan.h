#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "kernels/table.h"
#include "models/forward_batch.h"

namespace kvasir {

// The attention of one step in the layers of one KV group, cut into items that threads take one by one. How
// it is cut never touches a bit: an item is one or more whole calls' worth of chunks and splits
// (docs/numerics.md, rule 4).
//  - Sequences whose block tables begin with the same blocks are put into one item per KV head, so that these
//    blocks are read once for all of them. Layers with a window share only as long as no row's window leaves
//    anything out.
//  - What takes one thread much longer than its share is cut into ranges of splits; the partial results wait
//    in a buffer for whoever ends the unit's last piece.
class AttentionPlan {
 public:
  struct Shape {
    uint32_t kv_heads = 0;
    uint32_t group = 0;   // query heads per KV head
    uint32_t window = 0;  // 0: everything is seen
    uint32_t threads = 0;
    uint32_t max_rows = 0;
    uint32_t max_partials = 0;  // partial results that the buffer holds
    uint32_t call_rows = kAttnMaxRows;
    uint32_t lanes = 1;  // a call takes the rows of each sequence by so many
  };

  // Tokens of one sequence: their results are complete, for one KV head, when all `pieces` are.
  struct Unit {
    uint32_t sequence = 0;
    uint32_t first_row = 0;
    uint32_t tokens = 0;
    uint32_t first_position = 0;
    uint32_t first_split = 0;  // that any of its rows sees
    uint32_t split_end = 0;
    uint32_t pieces = 1;    // items per KV head that hold it
    uint32_t partials = 0;  // its first in the buffer, if cut
  };
  // A call: splits [split_begin, split_end) of neighbouring units under one KV head.
  struct Item {
    uint32_t unit_begin = 0;
    uint32_t unit_count = 0;
    uint32_t kv_head = 0;
    uint32_t shared = 0;  // positions that all of its units read from the same blocks
    uint32_t split_begin = 0;
    uint32_t split_end = 0;
    bool partial = false;  // only some of the splits: results go to the buffer
  };

  // Allocates everything that plan() needs.
  explicit AttentionPlan(const Shape& shape);

  // Plans a batch; `kv_group` says which of each sequence's tables counts, `ids_per_entry` how many block ids
  // an entry of it has.
  void plan(const ForwardBatch& batch, uint32_t kv_group, uint32_t ids_per_entry, uint32_t block_size);

  const Shape& shape() const { return shape_; }
  std::span<const Unit> units() const { return units_; }
  std::span<const Item> items() const { return items_; }
  // Whether each row is the only one of its sequence and lies in one item per KV head: nothing else in the
  // step sees its K and V.
  bool rows_stand_alone() const { return rows_stand_alone_; }
  // Where in the buffer the partial results of a row of a cut unit begin, one per split of the unit. `row`
  // counts (token, query head of the group) pairs.
  uint32_t partials_of(const Unit& unit, uint32_t kv_head, uint32_t row) const;

 private:
  struct Candidate {  // a sequence that may share
    uint32_t sequence = 0;
    BlockId first_block = kNoBlock;
  };
  // Units that share a prefix (or one alone), before they are cut.
  struct Cluster {
    uint32_t unit_begin = 0;
    uint32_t unit_count = 0;
    uint32_t shared = 0;
    uint32_t rows = 0;
  };
  struct Run {
    size_t end = 0;
    uint32_t shared = 0;
    uint32_t rows = 0;
  };

  uint32_t rows_of(uint32_t tokens) const;
  void add_alone(uint32_t sequence);
  Unit make_unit(uint32_t sequence, uint32_t first_row, uint32_t tokens) const;
  bool may_share(const ForwardBatch::Sequence& sequence) const;
  void find_clusters();
  Run find_run(size_t begin) const;
  uint32_t shared_positions(uint32_t a, uint32_t b) const;
  void deal_run(size_t begin, const Run& run);
  void close_cluster(uint32_t unit_begin, uint32_t shared);
  uint64_t cost(const Cluster& cluster) const;
  void emit(const Cluster& cluster, uint64_t target);
  bool cut(const Cluster& cluster, uint64_t target);
  void emit_pieces(const Cluster& part, uint32_t split_begin, uint32_t split_end, uint32_t pieces,
                   bool partial);

  Shape shape_;
  const ForwardBatch* batch_ = nullptr;  // while planning
  uint32_t kv_group_ = 0;
  uint32_t ids_per_entry_ = 0;
  uint32_t block_size_ = 0;
  uint32_t partials_used_ = 0;
  bool rows_stand_alone_ = false;
  std::vector<Unit> units_;
  std::vector<Item> items_;
  std::vector<Candidate> candidates_;
  std::vector<Cluster> clusters_;
};

}  // namespace kvasir
