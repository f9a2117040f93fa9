#pragma once

#include <cstdint>
#include <vector>

#include "engine/sequence.h"
#include "perf/step_cost.h"

namespace kvasir {

// Which sequences of a step read the same blocks, as far as attention makes use of it (AttentionPlan): what a
// prediction of the step's time has to know. Looks at the tables of one KV group, the first without a window
// if there is one, and compares each sequence with the first that begins with the same block.
class SharedRows {
 public:
  // Of at most `sequences` in a step: more than that allocate.
  SharedRows(const KvLayout& layout, uint32_t sequences);

  void clear() { prefixes_.clear(); }
  // `rows` rows of a sequence after those that it has computed, beside the sequences named since clear().
  StepRows rows_of(const Sequence& sequence, uint32_t rows);

 private:
  struct Prefix {
    const Sequence* first = nullptr;
    uint32_t positions = 0;  // that all of its sequences share; 0 where it is only one
    uint32_t rows = 0;
  };
  uint32_t shared_positions(const Sequence& a, const Sequence& b) const;

  const BlockId* table(const Sequence& s) const { return s.table.tables()[group_]; }

  uint32_t block_size_;
  uint32_t ids_per_entry_;
  uint32_t group_ = 0;
  std::vector<Prefix> prefixes_;
};

}  // namespace kvasir
