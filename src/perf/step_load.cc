#include <algorithm>

#include "perf/perf_model.h"

namespace kvasir {
namespace {

// As many rows at least end with the last layer's K and V, or none (models/last_rows.cc). Predicted as if so
// many never did, lest one row more be predicted to take less time.
constexpr uint32_t kLeastLeftOut = 8;

}  // namespace

void StepLoad::repeat(uint32_t times) {
  rows *= times;
  sequences *= times;
  logits.rows *= times;
  logits.whole *= times;
  for (Attention& a : attention) a.all *= times;
  left_out *= times;
  left_out_attention *= times;
}

void StepLoad::add_rows(uint32_t count, const FurtherRow& each) {
  if (count == 0) return;
  rows += count;
  logits.rows += count;
  most_rows = std::max(most_rows, 2u);
  for (size_t g = 0; g < attention.size(); ++g) {
    attention[g].all += count * each[g].all;
    attention[g].longest += each[g].longest;
  }
}

StepLoad::FurtherRow StepCosts::further_row(uint32_t context) const {
  StepLoad one, three;
  add(one, {.rows = 1, .context = context}, 1);
  add(three, {.rows = 3, .context = context}, 3);
  StepLoad::FurtherRow each;
  for (size_t g = 0; g < each.size(); ++g) {
    each[g] = {.all = std::max(0.0, three.attention[g].all - one.attention[g].all) / 2,
               .longest = std::max(0.0, three.attention[g].longest - one.attention[g].longest)};
  }
  return each;
}

uint32_t StepCosts::most_rows(const StepLoad& load, uint32_t context, uint32_t limit, double target,
                              uint32_t unscored) const {
  const auto fits = [&](uint32_t rows) {
    StepLoad with = load;
    const uint32_t scored = rows > unscored ? rows - unscored : 0;
    add(with, {.rows = rows, .context = context}, {std::max(scored, 1u), scored > 1 ? scored : 0});
    return seconds(with) <= target;
  };
  if (limit > 0 && fits(limit)) return limit;
  uint32_t low = 0, high = limit;  // low fits, high does not
  while (low + 1 < high) {
    const uint32_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

void PerfModel::add_all(StepLoad& load, std::span<const StepRows> sequences, LogitRows logits) const {
  uint32_t first = 0, further = logits.rows;
  for (const StepRows& s : sequences) first += s.rows > 0 ? 1 : 0;
  first = std::min(first, logits.rows);
  further -= first;
  for (const StepRows& s : sequences) {
    if (s.rows == 0) continue;
    const uint32_t one = first > 0 ? 1 : 0, more = std::min(further, s.rows - one);
    first -= one;
    further -= more;
    add(load, s, one + more);
  }
  load.logits = logits;
}

StepSeconds PerfModel::left_out_seconds(const StepLoad& load) const {
  StepSeconds out{};
  if (load.left_out <= kLeastLeftOut) return out;
  const uint32_t rows = load.left_out - kLeastLeftOut;
  const auto at = [&](uint32_t n) -> const StepSeconds& {
    return by_rows_[std::min<size_t>(n, by_rows_.size() - 1)];
  };
  for (const StepPart part : {StepPart::kStream, StepPart::kCompute}) {
    const auto i = static_cast<size_t>(part);
    out[i] = last_part_ * (at(load.rows)[i] - at(load.rows - rows)[i]);
  }
  out[static_cast<size_t>(StepPart::kAttention)] =
      load.left_out_attention / options_.threads * rows / load.left_out;
  out[static_cast<size_t>(StepPart::kRest)] =
      rows * (rest_.shared + rest_.norms / 2 / options_.threads) / config_.layers;
  return out;
}

}  // namespace kvasir
