#include "engine/guess_chooser.h"

#include <algorithm>
#include <limits>

#include "decoding/sampler.h"

namespace kvasir {

uint32_t logits_to_grade(const DraftJob& job) {
  const uint32_t needed = job.sampler->logits_to_choose(job.output_tokens + job.draft->size);
  return needed == kAllLogits ? needed : std::max(needed, 2u);
}

uint8_t grade_of(const BestLogits& best, TokenId chosen) {
  float own = -std::numeric_limits<float>::infinity(), other = own;
  for (const Candidate& c : best.list())
    (c.id == chosen ? own : other) = std::max(c.x, c.id == chosen ? own : other);
  return grade_of(own - other);
}

bool more_guesses_wanted(const DraftJob& job, std::span<const TokenId> end_tokens) {
  Draft& draft = *job.draft;
  if (draft.size == 0 || draft.size >= job.most) return false;
  if (std::ranges::count(end_tokens, draft.tokens[draft.size - 1]) > 0) return false;
  draft.gave_up = job.stop != nullptr && job.stop->ends(draft);
  return !draft.gave_up;
}

GuessChooser::GuessChooser(const KernelTable& kernels, uint32_t vocab)
    : kernels_(kernels), row_(size_t{vocab} * sizeof(float)) {}

void GuessChooser::choose(const DraftJob& job, const GuessHead& head, const float* logits) {
  const uint32_t position = static_cast<uint32_t>(job.known.size()) + job.draft->size;
  const uint32_t output_count = job.output_tokens + job.draft->size;
  const uint32_t wanted = logits_to_grade(job);
  if (wanted == kAllLogits) {
    head.spread(logits, row_.as<float>());
    const auto token = job.sampler->choose(row_.as<float>(), position, output_count, scratch_);
    if (token.ok() && *token != kNoToken) job.draft->add(*token);
    return;
  }
  best_.start(wanted);
  head.take_best(logits, kernels_, best_);
  const auto token = job.sampler->choose(best_, position, output_count, scratch_);
  if (token.ok() && *token != kNoToken) job.draft->add(*token, grade_of(best_, *token));
}

}  // namespace kvasir
