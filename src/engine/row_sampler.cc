#include "engine/row_sampler.h"

#include <algorithm>

namespace kvasir {

RowSampler::RowSampler(ThreadPool& pool, uint32_t max_rows) : pool_(pool), scratch_(pool.size()) {
  rows_.reserve(max_rows);
}

Result<SampledToken> RowSampler::sample(const Choice& choice, const RowLogits& logits,
                                        SamplerScratch& scratch) {
  if (logits.best != nullptr)
    return choice.sampler.sample(*logits.best, choice.known(), choice.output_tokens, scratch);
  return choice.sampler.sample(logits.all, choice.known(), choice.output_tokens, scratch);
}

std::span<RowSampler::Row> RowSampler::run() {
  const auto every = [this](size_t first, size_t step) {
    for (size_t i = first; i < rows_.size(); i += step)
      rows_[i].chosen = sample(*rows_[i].choice, rows_[i].logits, scratch_[first]);
  };
  const auto whole = std::count_if(rows_.begin(), rows_.end(), [](const Row& r) { return !r.logits.best; });
  if (whole < 2 || pool_.size() == 1)
    every(0, 1);
  else
    pool_.run([&every](Worker& worker) { every(worker.index(), worker.count()); });
  return rows_;
}

}  // namespace kvasir
