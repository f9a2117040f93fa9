#include "engine/row_sampler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace kvasir {
namespace {

Result<SampledToken> sample(const Choice& choice, const RowLogits& logits, SamplerScratch& scratch,
                            TokenId guess) {
  if (logits.best != nullptr)
    return choice.sampler.sample(*logits.best, choice.known(), choice.output_tokens, scratch, guess);
  return choice.sampler.sample(logits.all, choice.known(), choice.output_tokens, scratch, guess);
}

}  // namespace

RowSampler::RowSampler(ThreadPool& pool, const Tokenizer& tokenizer, uint32_t max_sequences,
                       uint32_t max_rows, uint32_t max_model_len, bool rejection)
    : pool_(pool),
      tokenizer_(tokenizer),
      max_model_len_(max_model_len),
      rejection_(rejection),
      scratch_(pool.size()) {
  sequences_.reserve(max_sequences);
  rows_.reserve(max_rows);
}

void RowSampler::clear() {
  sequences_.clear();
  rows_.clear();
}

void RowSampler::add(Choice& choice, const RowLogits& logits) {
  sequences_.push_back({&choice, static_cast<uint32_t>(rows_.size()), 0, 0, FinishReason::kNone, {}});
  add_row(logits);
}

void RowSampler::add_row(const RowLogits& logits) {
  DCHECK(rows_.size() < rows_.capacity());
  rows_.push_back(logits);
  ++sequences_.back().rows;
}

void RowSampler::advance(Advance& sequence, std::span<const RowLogits> rows, SamplerScratch& scratch) const {
  Choice& choice = *sequence.choice;
  for (const RowLogits& row : rows) {
    const bool guessed = sequence.tokens + 1 < rows.size();
    const TokenId guess = rejection_ && guessed ? choice.draft.tokens[sequence.tokens] : kNoToken;
    Result<SampledToken> chosen = sample(choice, row, scratch, guess);
    if (!chosen.ok()) {
      sequence.finish = FinishReason::kError;
      sequence.error = chosen.status();
      return;
    }
    const TokenId token = chosen.value().token;
    sequence.finish = choice.accept(std::move(chosen).value(), tokenizer_, max_model_len_);
    ++sequence.tokens;
    if (sequence.finish != FinishReason::kNone || sequence.tokens == rows.size()) return;
    if (choice.draft.tokens[sequence.tokens - 1] != token) return;
  }
}

std::span<RowSampler::Advance> RowSampler::run() {
  const auto every = [this](size_t first, size_t step) {
    for (size_t i = first; i < sequences_.size(); i += step)
      advance(sequences_[i],
              std::span<const RowLogits>(rows_).subspan(sequences_[i].first, sequences_[i].rows),
              scratch_[first]);
  };
  const auto whole = std::count_if(rows_.begin(), rows_.end(), [](const RowLogits& r) { return !r.best; });
  if (whole < 2 || sequences_.size() < 2 || pool_.size() == 1)
    every(0, 1);
  else
    pool_.run([&every](Worker& worker) { every(worker.index(), worker.count()); });
  return sequences_;
}

RowSampler::Advance RowSampler::advance(Choice& choice, const RowLogits& logits) {
  Advance sequence{&choice, 0, 1, 0, FinishReason::kNone, {}};
  advance(sequence, {&logits, 1}, scratch_[0]);
  return sequence;
}

}  // namespace kvasir
