#include "decoding/logprobs.h"

#include <algorithm>

#include "decoding/candidates.h"

namespace kvasir {

SampledToken score_token(std::span<const float> row, TokenId token, uint32_t count,
                         const KernelTable& kernels, SamplerScratch& scratch) {
  const float log_sum = kernels.log_sum_exp(row.data(), static_cast<uint32_t>(row.size()));
  SampledToken out;
  out.token = token;
  out.logprob = row[static_cast<size_t>(token)] - log_sum;
  gather_largest(row, count, scratch);
  auto& best = scratch.candidates;
  std::sort(best.begin(), best.end(), ranks_before);
  out.top.reserve(best.size());
  for (const Candidate& c : best) out.top.push_back({c.id, c.x - log_sum});
  return out;
}

uint32_t rank_of(std::span<const float> row, const SampledToken& scored) {
  const auto& top = scored.top;
  const auto in_top = std::ranges::find(top, scored.token, &TokenLogprob::token);
  if (in_top != top.end()) return static_cast<uint32_t>(in_top - top.begin()) + 1;
  const Candidate own{row[static_cast<size_t>(scored.token)], scored.token};
  uint32_t before = 0;
  for (size_t i = 0; i < row.size(); ++i) before += ranks_before({row[i], static_cast<TokenId>(i)}, own);
  return before + 1;
}

}  // namespace kvasir
