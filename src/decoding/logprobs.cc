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

}  // namespace kvasir
