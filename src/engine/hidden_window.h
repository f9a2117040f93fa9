#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace kvasir {

// The hidden states of the last few tokens of a sequence, by position, as the target has shown them. They may
// be of guesses, which cut() takes out again.
class HiddenWindow {
 public:
  // Empty, for so many positions of so many values; memory that is there is kept.
  void open(uint32_t positions, uint32_t width) {
    positions_ = positions;
    width_ = width;
    begin_ = end_ = 0;
    values_.resize(size_t{positions} * width);
  }
  void clear() { begin_ = end_ = 0; }

  // Where the values of this position are to be written. It becomes the last one: what was behind it is
  // forgotten, and what was before it, too, where there is a gap.
  float* place(uint32_t position) {
    if (position > end_ || position < begin_ || begin_ == end_) begin_ = position;
    end_ = position + 1;
    begin_ = std::max(begin_, end_ - std::min(end_, positions_));
    return values_.data() + size_t{position % positions_} * width_;
  }
  // Positions from `end` on are not those of the sequence.
  void cut(uint32_t end) {
    end_ = std::min(end_, end);
    begin_ = std::min(begin_, end_);
  }

  // The positions there are: [begin, end), without a gap.
  uint32_t begin() const { return begin_; }
  uint32_t end() const { return end_; }
  const float* at(uint32_t position) const {
    DCHECK(position >= begin_ && position < end_);
    return values_.data() + size_t{position % positions_} * width_;
  }

 private:
  uint32_t positions_ = 1, width_ = 0;
  uint32_t begin_ = 0, end_ = 0;
  std::vector<float> values_;
};

}  // namespace kvasir
