#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/aligned_buffer.h"
#include "decoding/drafter.h"
#include "models/forward_batch.h"

namespace kvasir {

// Puts together what the drafters of an engine want to see of a pass, and shows it to each. All memory is
// allocated by reserve().
class HiddenWatch {
 public:
  static constexpr uint32_t kNobody = UINT32_MAX;
  struct Watcher {
    Drafter* drafter = nullptr;
    uint32_t index = 0;
    uint32_t rows = 0;  // that it wants of a sequence and pass, the last ones
  };
  // Rows of a slot's sequence in the pass.
  struct Seen {
    uint32_t slot = 0;
    uint32_t position = 0;  // of the first,
    uint32_t rows = 0;
    uint32_t first = 0;  // and which of the tap's rows that is
  };

  // Those that want nothing are left out.
  void add(Drafter& drafter, uint32_t index);
  // For passes of so many rows of a model of this width.
  void reserve(uint32_t max_rows, uint32_t width);
  bool any() const { return !watchers_.empty(); }
  uint32_t drafters() const { return drafters_; }  // bit i: the drafter with index i watches
  std::span<const Watcher> watchers() const { return watchers_; }

  // Before a pass: its sequences, in the order of its rows; those of nobody are passed over.
  void begin();
  void add_rows(uint32_t slot, uint32_t position, uint32_t rows);
  HiddenTap tap() const;
  // After it.
  std::span<const Seen> seen() const { return seen_; }
  HiddenRows rows_for(const Watcher& watcher, const Seen& seen) const;

 private:
  std::vector<Watcher> watchers_;
  uint32_t drafters_ = 0;
  std::vector<uint32_t> points_;  // of all watchers, ascending
  uint32_t most_rows_ = 0;        // that any wants of a sequence
  uint32_t width_ = 0;
  uint32_t batch_rows_ = 0;  // of the pass that is being put together
  std::vector<uint32_t> rows_;
  std::vector<Seen> seen_;
  AlignedBuffer values_;
};

}  // namespace kvasir
