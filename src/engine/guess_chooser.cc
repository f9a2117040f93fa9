#include "engine/guess_chooser.h"

#include "decoding/sampler.h"

namespace kvasir {

GuessChooser::GuessChooser(const KernelTable& kernels, uint32_t vocab)
    : kernels_(kernels), row_(size_t{vocab} * sizeof(float)) {}

TokenId GuessChooser::choose(const DraftJob& job, const GuessHead& head, const float* logits) {
  const uint32_t position = static_cast<uint32_t>(job.known.size()) + job.draft->size;
  const uint32_t output_count = job.output_tokens + job.draft->size;
  const uint32_t wanted = job.sampler->logits_to_choose(output_count);
  Result<TokenId> token = kNoToken;
  if (wanted == kAllLogits) {
    head.spread(logits, row_.as<float>());
    token = job.sampler->choose(row_.as<float>(), position, output_count, scratch_);
  } else {
    best_.start(wanted);
    head.take_best(logits, kernels_, best_);
    token = job.sampler->choose(best_, position, output_count, scratch_);
  }
  return token.ok() ? *token : kNoToken;
}

}  // namespace kvasir
