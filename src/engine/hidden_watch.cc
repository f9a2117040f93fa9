#include "engine/hidden_watch.h"

#include <algorithm>

namespace kvasir {

void HiddenWatch::add(Drafter& drafter, uint32_t index) {
  const HiddenWish wish = drafter.hidden_wish();
  if (wish.points.empty()) return;
  watchers_.push_back({&drafter, index, wish.rows});
  drafters_ |= 1u << index;
  most_rows_ = std::max(most_rows_, wish.rows);
  points_.insert(points_.end(), wish.points.begin(), wish.points.end());
  std::sort(points_.begin(), points_.end());
  points_.erase(std::unique(points_.begin(), points_.end()), points_.end());
}

void HiddenWatch::reserve(uint32_t max_rows, uint32_t width) {
  if (!any()) return;
  width_ = width;
  rows_.reserve(max_rows);
  seen_.reserve(max_rows);
  values_ = AlignedBuffer(size_t{max_rows} * points_.size() * width * sizeof(float));
}

void HiddenWatch::begin() {
  batch_rows_ = 0;
  rows_.clear();
  seen_.clear();
}

void HiddenWatch::add_rows(uint32_t slot, uint32_t position, uint32_t rows) {
  if (slot != kNobody) {
    const uint32_t left_out = rows - std::min(rows, most_rows_);
    seen_.push_back({slot, position + left_out, rows - left_out, static_cast<uint32_t>(rows_.size())});
    for (uint32_t r = left_out; r < rows; ++r) rows_.push_back(batch_rows_ + r);
  }
  batch_rows_ += rows;
}

HiddenTap HiddenWatch::tap() const {
  return {.rows = rows_, .points = points_, .out = values_.as<float>().data()};
}

HiddenRows HiddenWatch::rows_for(const Watcher& watcher, const Seen& seen) const {
  const uint32_t left_out = seen.rows - std::min(seen.rows, watcher.rows);
  const size_t row_values = points_.size() * width_;
  return {.first = seen.position + left_out,
          .rows = seen.rows - left_out,
          .width = width_,
          .points = points_,
          .values = values_.as<float>().data() + (seen.first + left_out) * row_values};
}

}  // namespace kvasir
