#include "engine/row_sampler.h"

namespace kvasir {

RowSampler::RowSampler(ThreadPool& pool, uint32_t max_rows) : pool_(pool), scratch_(pool.size()) {
  rows_.reserve(max_rows);
}

Result<SampledToken> RowSampler::sample(const Choice& choice, std::span<float> logits,
                                        SamplerScratch& scratch) {
  return choice.sampler.sample(logits, choice.known(), choice.output_tokens, scratch);
}

std::span<RowSampler::Row> RowSampler::run() {
  const auto every = [this](size_t first, size_t step) {
    for (size_t i = first; i < rows_.size(); i += step)
      rows_[i].chosen = sample(*rows_[i].choice, rows_[i].logits, scratch_[first]);
  };
  if (rows_.size() < 2 || pool_.size() == 1)
    every(0, 1);
  else
    pool_.run([&every](Worker& worker) { every(worker.index(), worker.count()); });
  return rows_;
}

}  // namespace kvasir
